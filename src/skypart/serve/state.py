"""What all requests to one server share."""

import hashlib
import json

from skypart.images.weather import CONDITIONS, LABELS, PROFILES
from skypart.serve.decoder import PhotoDecoder
from skypart.serve.metrics import Metrics
from skypart.serve.options import ServeOptions
from skypart.serve.photo_request import UploadReader
from skypart.serve.schemas import BoundsAnswer, IndexAnswer, LimitsAnswer, WeatherAnswer
from skypart.serve.service import LocateService
from skypart.serve.workers import WorkerPool

MEDIA_TYPES = ["image/jpeg", "image/png", "image/webp", "image/tiff"]


class ServerState:
    """The service, its limits, worker threads and metrics."""

    def __init__(self, service: LocateService, options: ServeOptions) -> None:
        self.service = service
        self.options = options
        self.inference_workers = WorkerPool("inference", options.workers, options.queue, options.wait_seconds)
        self.map_workers = WorkerPool("map", 1, options.map_queue)
        self.uploads = UploadReader(options)
        self.decoder = PhotoDecoder(options.decode_bytes, options.decode_seconds)
        self.metrics = Metrics()
        self.metrics.add_gauge("skypart_queue_length", "Photos waiting.", lambda: self.inference_workers.waiting)
        self.metrics.add_gauge("skypart_running", "Photos being processed.", lambda: self.inference_workers.running)
        self.metrics.add_gauge("skypart_map_queue_length", "Map images waiting.", lambda: self.map_workers.waiting)
        self.metrics.add_gauge("skypart_upload_bytes", "Bytes of uploads held.", lambda: self.uploads.held_bytes)
        self.examples = {example.name: example for example in service.examples()}
        self.index = self._describe_index()

    def _describe_index(self) -> IndexAnswer:
        info, options = self.service.info(), self.options
        content = [info, sorted(example.version for example in self.examples.values())]
        digest = hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()
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
        """Stop the worker threads and the decoder."""
        self.inference_workers.close()
        self.map_workers.close()
        self.decoder.close()
