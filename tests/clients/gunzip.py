"""Python decodes the stitched gzip streams: python gunzip.py PROXY_URL BLOCK_HASH

Compares each gzip answer with the plain one. Needs only the standard library; also tests `requests`, which web3.py uses,
if it is installed.
"""

import gzip
import json
import sys
import urllib.request
import zlib

if len(sys.argv) != 3:
    sys.exit("usage: python gunzip.py PROXY_URL BLOCK_HASH")
PROXY, BLOCK = sys.argv[1:]

CALLS = [("eth_getBlockByHash", [BLOCK, True]), ("eth_getBlockByHash", [BLOCK, False]), ("eth_getBlockReceipts", [BLOCK])]


def call(method, params, number):
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def post(body, encoding):
    headers = {"content-type": "application/json", "accept-encoding": encoding}
    request = urllib.request.Request(PROXY, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        answer = response.read()
        assert int(response.headers["content-length"]) == len(answer), "content-length"
        assert "accept-encoding" in response.headers["vary"], response.headers["vary"]
        return response.headers.get("content-encoding"), answer


def piecewise(data, size):
    """Decodes in pieces of `size` bytes; the stream must end exactly with its last byte."""
    decoder = zlib.decompressobj(zlib.MAX_WBITS | 16)
    out = b""
    for start in range(0, len(data), size):
        assert not decoder.eof
        out += decoder.decompress(data[start : start + size])
    assert decoder.eof and not decoder.unused_data and not decoder.unconsumed_tail
    return out


bodies = [call(method, params, f"id of {method} é") for method, params in CALLS]
bodies += [bodies[:], [bodies[0], call("eth_chainId", [], 7), call("eth_nope", [], None), bodies[2], bodies[2]]]
for body in bodies:
    encoding, plain = post(body, "identity")
    assert encoding is None, encoding
    encoding, packed = post(body, "gzip")
    assert encoding == "gzip", encoding
    assert len(packed) < len(plain), (len(packed), len(plain))
    assert gzip.decompress(packed) == plain, "gzip"
    assert zlib.decompress(packed, zlib.MAX_WBITS | 16) == plain, "zlib"
    assert zlib.decompress(packed, zlib.MAX_WBITS | 32) == plain, "zlib, by itself"
    for size in (1, 7, 4096):
        assert piecewise(packed, size) == plain, f"{size} bytes at a time"
    print(f"ok   {len(plain)} bytes as {len(packed)}")

try:
    import requests
except ImportError:
    print("requests is not installed")
else:
    for body in bodies:
        answer = requests.post(PROXY, json=body, timeout=60)
        assert answer.headers["content-encoding"] == "gzip", answer.headers
        assert answer.content == post(body, "identity")[1]
        streamed = requests.post(PROXY, json=body, timeout=60, stream=True)
        assert b"".join(streamed.iter_content(100)) == answer.content
    print("ok   requests")
