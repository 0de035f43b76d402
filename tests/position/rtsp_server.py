"""A real RTSP server on loopback, GStreamer of Debian: /usr/bin/python3 rtsp_server.py PORT VIDEO.avi"""

import sys

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtspServer  # noqa: E402

Gst.init(None)
server = GstRtspServer.RTSPServer()
server.set_address("127.0.0.1")
server.set_service(sys.argv[1])
factory = GstRtspServer.RTSPMediaFactory()
factory.set_launch(
    f"( filesrc location={sys.argv[2]} ! avidemux ! jpegdec ! videoconvert ! jpegenc quality=92 "
    "! rtpjpegpay name=pay0 pt=26 )"
)
factory.set_shared(False)
server.get_mount_points().add_factory("/flight", factory)
server.attach(None)
print("ready", flush=True)
GLib.MainLoop().run()
