"""The engine without a cluster: one block after the other, in this process."""

from skypart.embedding.patches import PatchReader
from skypart.errors import SkyPartError
from skypart.maps.engines.interface import Advance, Engine, MapJob, embed_block, write_block


def open_local(address: str) -> Engine:
    """The local engine; it has no address."""
    if address:
        raise SkyPartError(f"--address {address}: the local engine has no address; add --engine ray")
    return LocalEngine()


class LocalEngine:
    """Embeds in the calling thread, with the embedder of the job."""

    def embed_map(self, job: MapJob, advance: Advance) -> None:
        """Write all missing blocks of `job`."""
        reader = PatchReader(job.embedder)
        for number in job.missing(advance):
            block = embed_block(job.source, job.block(number), reader, advance, job.tokens)
            write_block(job.files[number], block)

    def close(self) -> None:
        """Nothing to release."""
