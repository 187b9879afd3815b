"""A real browser without a window."""

import re
import shutil
import subprocess

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
TELL_WIDTH = "parent.postMessage(document.documentElement.scrollWidth, '*')"


def browse(folder, page, *options):
    """What Chromium prints of a page in `folder`."""
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--user-data-dir={folder / 'profile'}",
    ]
    command = [CHROMIUM, *flags, *options, (folder / page).as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def needed_widths(folder, names, width):
    """How wide the content of each page, which has to run `TELL_WIDTH`, is in a window of `width`: in frames, as a
    browser's own window has a least width."""
    listen = "<p></p><script>onmessage = event => document.querySelector('p').append(`${event.data};`)</script>"
    frames = [f'<iframe src="{name}" style="width:{width}px;height:900px;border:0"></iframe>' for name in names]
    (folder / "frames.html").write_text(listen + "".join(frames), encoding="utf-8")
    told = re.search(r"<p>(.*?)</p>", browse(folder, "frames.html", "--dump-dom")).group(1)
    return [int(needed) for needed in told.rstrip(";").split(";")]


def telling(content, script):
    """A page whose policy is taken away, with everything opened and a script at its end."""
    content = re.sub(r'<meta http-equiv="Content-Security-Policy".*?>', "", content)
    return content.replace("<details>", "<details open>").replace("</body>", f"<script>{script}</script></body>")
