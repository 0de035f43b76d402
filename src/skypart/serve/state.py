"""What all requests of one server share."""

import hashlib
import json

from skypart.images.weather import CONDITIONS, LABELS, PROFILES
from skypart.serve.answers import BoundsAnswer, IndexAnswer, LimitsAnswer, WeatherAnswer
from skypart.serve.lanes import Lane
from skypart.serve.metrics import Metrics
from skypart.serve.options import ServeOptions
from skypart.serve.service import LocateService
from skypart.serve.uploads import Uploads

MEDIA_TYPES = ["image/jpeg", "image/png", "image/webp", "image/tiff"]


class State:
    """The service, its limits, its worker threads and its counts."""

    def __init__(self, service: LocateService, options: ServeOptions) -> None:
        self.service = service
        self.options = options
        self.inference = Lane("inference", options.workers, options.queue, options.wait_seconds)
        self.maps = Lane("map", 1, options.map_queue)
        self.uploads = Uploads(options)
        self.metrics = Metrics()
        self.metrics.gauge("skypart_queue_length", "Photos that wait.", lambda: self.inference.waiting)
        self.metrics.gauge("skypart_running", "Photos that are worked on.", lambda: self.inference.running)
        self.metrics.gauge("skypart_map_queue_length", "Tiles and views that wait.", lambda: self.maps.waiting)
        self.metrics.gauge("skypart_upload_bytes", "Bytes of uploads held.", lambda: self.uploads.held_bytes)
        self.examples = {example.name: example for example in service.examples()}
        self.index = self._describe()

    def _describe(self) -> IndexAnswer:
        info, options = self.service.info(), self.options
        shown = [info, sorted(example.version for example in self.examples.values())]
        digest = hashlib.sha256(json.dumps(shown, sort_keys=True, default=str).encode()).hexdigest()
        return IndexAnswer(
            name=info["name"],
            maps=info["maps"],
            views=info["views"],
            model=info["model"],
            bounds=BoundsAnswer(**info["bounds"]),
            attribution=info["attribution"],
            calibrated=info["calibrated"],
            gsd_m=info.get("gsd_m"),
            version=digest[:16],
            weathers=[WeatherAnswer(name=name, title=LABELS[name]) for name in CONDITIONS],
            profiles=list(PROFILES),
            limits=LimitsAnswer(
                max_bytes=options.max_bytes,
                max_pixels=options.max_pixels,
                upload_seconds=options.upload_seconds,
                formats=MEDIA_TYPES,
            ),
        )

    def close(self) -> None:
        """End the worker threads."""
        self.inference.close()
        self.maps.close()
