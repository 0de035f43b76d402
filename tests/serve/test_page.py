"""The page in a real browser."""

import io
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from PIL import Image

from skypart.images.weather import PROFILES
from skypart.serve.options import ServeOptions
from tests.serve.browser import Visit, open_browser, overflow, verdict
from tests.serve.conftest import encoded
from tests.serve.fake_service import FakeService
from tests.serve.live import serving

pytestmark = pytest.mark.slow


OUTLINES = """[document.activeElement, document.activeElement.closest("label")]
  .map((each) => each && getComputedStyle(each).outlineStyle)"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def url(shared_service: FakeService) -> Iterator[str]:
    with serving(shared_service) as address:
        yield address


@pytest.fixture
def visit(browser: Any, url: str) -> Iterator[Callable[..., Visit]]:
    """Opens the page. At the end, checks that there were no foreign requests and no errors."""
    visits: list[Visit] = []

    def begin(address: str = url, **options: Any) -> Visit:
        visits.append(Visit(browser, address, **options))
        return visits[-1]

    yield begin
    for each in visits:
        assert each.requests and each.foreign() == []
        assert each.errors == []
        each.close()


def send(page: Any, data: bytes, name: str = "flight 12.jpg", kind: str = "image/jpeg") -> None:
    """Choose a file."""
    page.set_input_files("#file", {"name": name, "mimeType": kind, "buffer": data})


def wait_for_image(page: Any, selector: str) -> None:
    """Wait until an image has pixels."""
    page.wait_for_selector(f"{selector}[src]", state="attached")
    handle = page.query_selector(selector)
    assert page.evaluate("image => image.decode().then(() => image.naturalWidth)", handle) > 0


def note(page: Any, weather: str) -> str:
    """Text of a weather chip; empty before it was tried."""
    return str(page.inner_text(f'.weather[data-name="{weather}"] .weather-note'))


def test_a_photo_is_located(visit: Callable[..., Visit], service: FakeService, photo: bytes) -> None:
    page = visit().open()
    send(page, photo)
    text = verdict(page, "fix")
    latitude, longitude = service.degrees(300, 320)
    found = [float(number) for number in re.findall(r"\d+\.\d+", text)[:2]]
    assert found == pytest.approx([latitude, longitude], abs=5e-5)
    facts = page.inner_text("#facts")
    assert "95 % radius" in facts and "Confidence" in facts and "True error" not in facts
    assert page.locator("path.fix-circle").count() == 2
    assert page.locator(".mark-fix").count() == 1
    page.wait_for_selector(".leaflet-tile-loaded")
    page.wait_for_selector(".view >> nth=4")
    scores = [float(value) for value in page.locator(".view-score").all_inner_texts()]
    assert len(scores) == 5 and scores == sorted(scores, reverse=True)
    for number in range(5):
        wait_for_image(page, f"li:nth-child({number + 1}) > .view img")
    wait_for_image(page, "#parts")
    wait_for_image(page, "#photo")
    assert "Found at" in page.inner_text("#status")


def test_no_request_goes_to_another_server(visit: Callable[..., Visit], photo: bytes) -> None:
    started = visit()
    page = started.open()
    send(page, photo)
    verdict(page, "fix")
    wait_for_image(page, "#parts")
    page.wait_for_selector(".leaflet-tile-loaded")
    paths = [address.removeprefix(started.url) for address in started.requests]
    for wanted in ("/", "/static/js/main.js", "/static/vendor/", "/v1/index", "/v1/locate", "/v1/parts", "/tiles/"):
        assert any(path.startswith(wanted) for path in paths), wanted
    assert started.foreign() == []


def test_the_circle_is_as_large_as_the_radius(visit: Callable[..., Visit]) -> None:
    page = visit(viewport={"width": 1440, "height": 900}, reduced_motion="reduce").open()
    page.click(".example >> nth=0")
    verdict(page, "fix")
    radius = float(re.findall(r"95 % radius\s+([\d.]+) m", page.inner_text("#facts"))[0])
    page.wait_for_selector("path.fix-circle >> nth=1")
    scale = page.locator(".leaflet-control-scale-line")
    metres_per_pixel = float(re.findall(r"\d+", scale.inner_text())[0]) / scale.bounding_box()["width"]
    drawn = page.locator("path.fix-circle >> nth=1").bounding_box()["width"] / 2 * metres_per_pixel
    assert drawn == pytest.approx(radius, rel=0.15)


def test_an_example_is_located_with_its_true_error(visit: Callable[..., Visit]) -> None:
    page = visit().open()
    page.click(".example >> nth=1")
    verdict(page, "fix")
    error = re.findall(r"True error\s+([\d.]+) m", page.inner_text("#facts"))
    assert float(error[0]) < 10
    assert page.locator(".mark-truth").count() == 1


def test_a_photo_of_another_place_has_no_fix(visit: Callable[..., Visit], grey: bytes) -> None:
    page = visit().open()
    page.click("text=another town")
    text = verdict(page, "none")
    assert "Not in this map" in text and "resembles" in text
    assert page.locator("path.fix-circle").count() == 0
    assert page.locator(".view").count() == 5
    assert "Not in this map" in page.inner_text("#status")
    send(page, grey, "grey.png", "image/png")
    page.wait_for_selector("text=it has one colour")
    assert page.locator(".view").count() == 0


def test_weather_makes_a_fix_hold_or_fail(visit: Callable[..., Visit], photo: bytes) -> None:
    page = visit().open()
    send(page, photo)
    verdict(page, "fix")
    assert note(page, "normal") == "clear fix" and not note(page, "dark")
    assert page.locator("#profiles label").all_inner_texts() == list(PROFILES), "as on the command line"
    page.check('input[value="dark"]', force=True)
    page.wait_for_selector('.weather[data-name="dark"][data-state="held"]')
    page.wait_for_selector("text=Photo in dark")
    verdict(page, "fix")
    page.check('input[value="weatherprompt"]', force=True)
    assert "In dark it is not recognised" in verdict(page, "none")
    assert note(page, "dark") == "no fix"
    page.check('input[value="paper"]', force=True)
    verdict(page, "fix")
    assert re.fullmatch(r"shift [\d.]+ m", note(page, "dark"))


def test_all_ten_weathers_are_tried(visit: Callable[..., Visit]) -> None:
    page = visit().open()
    assert page.is_disabled("#try-all")
    page.click(".example >> nth=0")
    verdict(page, "fix")
    page.click("#try-all")
    page.wait_for_selector('.weather[data-name="wind"]:not([data-state=""]):not([data-state="busy"])')
    states = [page.get_attribute(f".weather >> nth={i}", "data-state") for i in range(10)]
    assert len(states) == 10 and set(states) <= {"held", "moved", "lost"}
    page.wait_for_selector("#try-all >> text=Try all ten")
    assert page.inner_text("#weather-summary") == (
        f"The fix holds in {states.count('held')} of 10 tried. Badges show the shift from the clear fix."
    )


def test_everything_can_be_done_with_the_keyboard(visit: Callable[..., Visit], service: FakeService) -> None:
    page = visit().open()

    def tab_to(selector: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate("selector => document.activeElement.matches(selector)", selector):
                assert "solid" in page.evaluate(OUTLINES), f"{selector} shows no focus outline"
                return
        raise AssertionError(f"{selector} cannot be reached with Tab")

    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    tab_to("#file")
    tab_to(".example")
    page.keyboard.press("Enter")
    verdict(page, "fix")
    tab_to('input[name="weather"]')
    page.keyboard.press("ArrowRight")
    page.wait_for_selector('.weather[data-name="fog"]:not([data-state=""])')
    page.keyboard.press("ArrowLeft")
    verdict(page, "fix")
    tab_to("#known > summary")
    page.keyboard.press("Enter")
    latitude, longitude = service.degrees(240, 240)
    tab_to('input[name="latitude"]')
    page.keyboard.type(f"{latitude:.6f}")
    page.keyboard.press("Tab")
    page.keyboard.type(f"{longitude:.6f}")
    page.keyboard.press("Tab")
    page.keyboard.type("150")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=within 150 m")
    verdict(page, "fix")
    tab_to("#map")
    tab_to(".view")
    page.keyboard.press("Enter")
    prior = service.calls[-1][1]
    assert prior is not None and prior.radius_m == 150


def test_a_place_is_picked_on_the_map(visit: Callable[..., Visit], service: FakeService, photo: bytes) -> None:
    page = visit(viewport={"width": 1440, "height": 900}, reduced_motion="reduce").open()
    send(page, photo)
    verdict(page, "fix")
    page.wait_for_selector("path.fix-circle >> nth=1")
    page.click("#known > summary")
    page.click("#pick")
    assert page.get_attribute("#pick", "aria-pressed") == "true"
    box = page.locator("#map").bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_selector("text=within 300 m")
    verdict(page, "fix")
    prior = service.calls[-1][1]
    assert prior is not None
    middle = service.degrees(300, 320)
    assert (prior.latitude, prior.longitude) == pytest.approx(middle, abs=5e-4)
    page.fill('[name="tilt_deg"]', "45")
    page.fill('[name="altitude_m"]', "60")
    page.click("text=Locate again")
    page.wait_for_selector(".mark-drone")
    assert "The drone was at" in verdict(page, "fix")
    page.fill('[name="latitude"]', "100")
    page.click("text=Locate again")
    page.wait_for_selector('[name="latitude"][aria-invalid]')


def test_a_phone_needs_no_sideways_scrolling(visit: Callable[..., Visit], photo: bytes) -> None:
    started = visit(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True, device_scale_factor=2)
    page = started.open()

    def check() -> None:
        for width in (320, 390):
            page.set_viewport_size({"width": width, "height": 844})
            assert overflow(page) == 0, width

    check()
    send(page, photo, "a rather long name of a photo " * 4 + ".jpg")
    verdict(page, "fix")
    wait_for_image(page, "#parts")
    check()
    page.tap('.weather[data-name="snow"]')
    page.wait_for_selector('.weather[data-name="snow"]:not([data-state=""])')
    page.tap("#known > summary")
    check()
    page.tap("text=another town")
    verdict(page, "none")
    check()
    smallest = page.evaluate(
        """() => [...document.querySelectorAll("button, .weather, summary, .segments label, .fields input, #map a")]
          .map((each) => [each.textContent, each.getBoundingClientRect()])
          .filter(([text, box]) => box.width && Math.min(box.width, box.height) < 44).map(([text]) => text)"""
    )
    assert smallest == []


def test_a_file_can_be_dropped_anywhere(visit: Callable[..., Visit], photo: bytes) -> None:
    page = visit().open()
    page.evaluate(
        """bytes => {
          const data = new DataTransfer();
          data.items.add(new File([new Uint8Array(bytes)], "dropped.jpg", { type: "image/jpeg" }));
          for (const kind of ["dragenter", "dragover", "drop"]) {
            document.body.dispatchEvent(new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true }));
          }
        }""",
        list(photo),
    )
    verdict(page, "fix")
    assert page.inner_text("#photo-name") == "dropped.jpg"


def test_names_are_text_and_never_code(visit: Callable[..., Visit], photo: bytes) -> None:
    name = "<img src=x onerror=alert(1)><script>alert(2)<script>.jpg"
    page = visit().open()
    send(page, photo, name)
    verdict(page, "fix")
    assert page.inner_text("#photo-name") == name
    assert page.inner_text("#map-note") == "painted by <b>tests</b>"
    assert page.locator("main script, #map-note b, #photo-name img").count() == 0


def test_a_bad_file_shows_an_error_and_the_next_one_works(visit: Callable[..., Visit], photo: bytes) -> None:
    started = visit()
    page = started.open()
    send(page, b"these are no pixels", "<i>notes</i>.txt", "text/plain")
    assert "not a JPEG, PNG, WebP or TIFF file" in verdict(page, "error")
    assert page.is_visible("#drop")
    assert "Error" in page.inner_text("#status")
    assert len(started.errors) == 1 and "415" in started.errors[0]  # browsers log every 415
    started.errors.clear()
    send(page, photo)
    verdict(page, "fix")


def test_a_photo_over_the_limit_is_not_sent(visit: Callable[..., Visit], browser: Any, service: FakeService) -> None:
    with serving(service, ServeOptions(port=0, max_bytes=100_000)) as url:
        page = visit(url).open()
        send(page, b"x" * 150_000)
        assert "the limit is" in verdict(page, "error")
    assert service.calls == []


def test_a_tiff_is_shown_although_browsers_cannot(visit: Callable[..., Visit], service: FakeService) -> None:
    page = visit().open()
    send(page, encoded(service.photo(300, 320), "TIFF"), "map.tif", "image/tiff")
    verdict(page, "fix")
    wait_for_image(page, "#photo")
    wait_for_image(page, "#parts")


def test_a_busy_server_is_retried(visit: Callable[..., Visit], photo: bytes) -> None:
    started = visit()
    page = started.open()
    refusals = [503, 503]

    def answer(route: Any) -> None:
        if refusals:
            route.fulfill(status=refusals.pop(), headers={"Retry-After": "1"}, body='{"detail": "busy"}')
        else:
            route.continue_()

    page.route("**/v1/locate", answer)
    send(page, photo)
    page.wait_for_selector("#status >> text=busy")
    verdict(page, "fix")
    assert refusals == []
    started.errors.clear()  # browsers log every 503


def test_an_unreadable_map_is_not_retried(visit: Callable[..., Visit], photo: bytes) -> None:
    started = visit()
    page = started.open()
    asked: list[int] = []

    def answer(route: Any) -> None:
        asked.append(503)
        route.fulfill(status=503, body='{"detail": "the map town cannot be read by the server"}')

    page.route("**/v1/locate", answer)
    send(page, photo)
    page.wait_for_selector("text=the map town cannot be read by the server")
    assert asked == [503]
    started.errors.clear()  # browsers log every 503


def test_the_key_is_asked_for(visit: Callable[..., Visit], service: FakeService, photo: bytes) -> None:
    with serving(service, ServeOptions(port=0, api_key="open sesame")) as url:
        started = visit(url)
        page = started.page
        page.goto(url)
        page.fill("#key", "let me in")
        page.keyboard.press("Enter")
        page.wait_for_selector("text=That key is not correct")
        page.fill("#key", "open sesame")
        page.click("#key-form button")
        page.wait_for_selector("html[data-ready]")
        assert {text.split("status of ")[1][:3] for text in started.errors} == {"401"}
        started.errors.clear()
        send(page, photo)
        verdict(page, "fix")
        page.wait_for_selector(".leaflet-tile-loaded")
        wait_for_image(page, "li:nth-child(1) > .view img")
        wait_for_image(page, "#parts")
        page.reload()
        page.wait_for_selector("html[data-ready]")  # the tab still has the key


def test_without_the_map_library_the_rest_works(visit: Callable[..., Visit], photo: bytes) -> None:
    started = visit()
    started.page.route("**/vendor/**", lambda route: route.fulfill(status=404, body=""))
    page = started.open()
    assert "map library is not installed" in page.inner_text("#map-note")
    send(page, photo)
    verdict(page, "fix")
    wait_for_image(page, "li:nth-child(1) > .view img")
    started.errors.clear()  # browsers log every 404


def test_a_stopped_server_shows_an_error(visit: Callable[..., Visit], service: FakeService, photo: bytes) -> None:
    with serving(service) as url:
        started = visit(url)
        page = started.open()
    send(page, photo)
    assert "cannot be reached" in verdict(page, "error")
    started.errors.clear()


def test_light_and_dark_follow_the_system_and_can_be_switched(visit: Callable[..., Visit]) -> None:
    page = visit(color_scheme="dark").open()
    assert page.get_attribute("html", "data-theme") == "dark"
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    assert page.get_attribute("html", "data-theme") == "light"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != background
    page.reload()
    assert page.get_attribute("html", "data-theme") == "light"


def test_every_button_and_field_has_a_name(visit: Callable[..., Visit], photo: bytes) -> None:
    page = visit().open()
    send(page, photo)
    verdict(page, "fix")
    page.click("#known > summary")
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("button, input, a[href]")].filter((each) => {
          const label = each.labels?.[0]?.textContent ?? "";
          return !(each.textContent + label + (each.ariaLabel ?? "") + (each.title ?? "")).trim();
        }).map((each) => each.outerHTML)"""
    )
    assert unnamed == []
    assert page.get_attribute("html", "lang") == "en"
    assert page.get_attribute("#status", "aria-live") == "polite"


def test_a_rotated_photo_is_shown_upright(visit: Callable[..., Visit], service: FakeService) -> None:
    wide = Image.new("RGB", (900, 400))
    wide.paste(Image.fromarray(service.photo(300, 320)), (0, 0))
    exif = Image.Exif()
    exif[0x0112] = 6
    out = io.BytesIO()
    wide.save(out, "JPEG", exif=exif)
    page = visit().open()
    send(page, out.getvalue())
    page.wait_for_selector('#verdict:not([data-state="busy"])')
    box = page.locator("#photo-frame").bounding_box()
    assert box["height"] > 1.3 * box["width"]
