"""File formats of this package: a module each, which defines one `Format`. There is no other list of them."""
