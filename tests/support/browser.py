"""Pages in headless Chromium: their output and the width of their content."""

import re
import shutil
import subprocess

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
REPORT_WIDTH = "parent.postMessage(document.documentElement.scrollWidth, '*')"


def browse(folder, page, *options):
    """Return the standard output of Chromium for a page in `folder`."""
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--user-data-dir={folder / 'profile'}",
    ]
    command = [CHROMIUM, *flags, *options, (folder / page).as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def content_widths(folder, names, width):
    """Return the width in pixels that the content of each page takes in a window of `width`.

    The pages have to run `REPORT_WIDTH`.
    """
    return [int(pixels) for pixels in posted(folder, names, width)]


def posted(folder, names, width):
    """Return what each page posts to its parent, without a semicolon, in a window of `width`.

    The pages are shown in frames, since a browser's own window has a minimum width.
    """
    listen = "<p></p><script>onmessage = event => document.querySelector('p').append(`${event.data};`)</script>"
    frames = [f'<iframe src="{name}" style="width:{width}px;height:900px;border:0"></iframe>' for name in names]
    (folder / "frames.html").write_text(listen + "".join(frames), encoding="utf-8")
    reported = re.search(r"<p>(.*?)</p>", browse(folder, "frames.html", "--dump-dom")).group(1)
    return reported.rstrip(";").split(";")


def with_script(content, script):
    """Return a page without its security policy, with all details open and a script at its end."""
    content = re.sub(r'<meta http-equiv="Content-Security-Policy".*?>', "", content)
    return content.replace("<details", "<details open").replace("</body>", f"<script>{script}</script></body>")
