"""Reads the blocks of receipts with web3.py: python confirm_web3py.py PROXY_URL ROUNDS ACCOUNTS

In each round, each account sends a transaction, waits for the receipt, and then reads its block by number, by hash, and the
number of the head. See confirm.mjs.
"""

import sys
from concurrent.futures import ThreadPoolExecutor

from web3 import HTTPProvider, Web3
from web3.exceptions import BlockNotFound

if len(sys.argv) != 4:
    sys.exit("usage: python confirm_web3py.py PROXY_URL ROUNDS ACCOUNTS")
URL, ROUNDS, ACCOUNTS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

eth = Web3(HTTPProvider(URL, exception_retry_configuration=None)).eth
addresses = eth.accounts


def block(which):
    """Returns the hash of a block, or None."""
    try:
        return eth.get_block(which)["hash"]
    except BlockNotFound:
        return None


def one(account):
    """Returns the names of the reads that fell behind a receipt."""
    address = addresses[account]
    sent = eth.send_transaction({"from": address, "to": address, "value": 1})
    receipt = eth.wait_for_transaction_receipt(sent, poll_latency=0.05)
    number, block_hash = receipt["blockNumber"], receipt["blockHash"]
    reads = [
        ("by number", lambda: block(number) == block_hash),
        ("low heads", lambda: eth.block_number >= number),
        ("by hash", lambda: block(block_hash) == block_hash),
    ]
    # Each read is the first one for some accounts.
    reads = reads[account % 3 :] + reads[: account % 3]
    return [name for name, holds in reads if not holds()]


count = {"by number": 0, "by hash": 0, "low heads": 0}
sends = 0
with ThreadPoolExecutor(ACCOUNTS) as pool:
    for _ in range(ROUNDS):
        for wrong in pool.map(one, range(ACCOUNTS)):
            sends += 1
            for name in wrong:
                count[name] += 1
print(f"{sends} transactions; wrong: " + ", ".join(f"{times} {name}" for name, times in count.items()))
sys.exit(any(count.values()))
