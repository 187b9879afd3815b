"""Schema of a data file: its fields, label and id.

The folder `schema` also contains the inference of cell types and the reasons for rejected rows.
"""
