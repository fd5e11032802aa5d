"""Take the pictures of the demo's report that README and docs show.

    relfrog demo
    python docs/screenshots.py relfrog-demo/report.html

Needs playwright, Pillow and a Chromium on the path.
"""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def keep(name: str, raw: bytes) -> None:
    """Write a picture with few colours: charts do not need more."""
    from PIL import Image

    picture: Any = Image.open(io.BytesIO(raw)).convert("RGB").quantize(256, dither=0)
    picture.save(HERE / name, optimize=True)
    print(f"{name}: {(HERE / name).stat().st_size // 1000} kB")


def main(report: Path) -> None:
    """The page as it opens, a prediction explained, and a part of the page in the dark."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            page = browser.new_page(
                viewport={"width": 1180, "height": 1250},
                color_scheme=scheme,
                device_scale_factor=1.5,
            )
            page.goto(report.resolve().as_uri())
            page.add_style_tag(content="nav{position:static!important}")
            if scheme == "light":
                keep("report.png", page.screenshot())
                keep("report-explained.png", page.locator("#explained details[open]").screenshot())
            else:
                keep("report-dark.png", page.locator("#predictions .columns").screenshot())
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
