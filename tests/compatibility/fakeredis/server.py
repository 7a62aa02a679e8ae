"""fakeredis's own TCP server, on the port it is given."""

import sys

from fakeredis import TcpFakeServer

TcpFakeServer(("127.0.0.1", int(sys.argv[1])), server_type="redis").serve_forever()
