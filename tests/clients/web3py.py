"""Uses web3.py through the proxy and compares with the node: python web3py.py PROXY_URL NODE_URL"""

import asyncio
import json
import os
import secrets
import sys
import threading
import traceback
import urllib.request

from web3 import AsyncHTTPProvider, AsyncWeb3, HTTPProvider, Web3
from web3.exceptions import BlockNotFound, ContractCustomError, TransactionNotFound, Web3RPCError

if len(sys.argv) != 3:
    sys.exit("usage: python web3py.py PROXY_URL NODE_URL")
PROXY, NODE = sys.argv[1:]

# Account 2 of anvil's default mnemonic; anvil prints this key when it starts.
KEY = "0x5de4111afa1a4b94908f83103eb1f1706367c2e68ca870fc3fb9a804cdab365a"

TAGS = ["latest", "safe", "finalized", "earliest"]
NULL = '{"result":null}'


# --- steps -------------------------------------------------------------------------------


def timed_out():
    print("FAIL timed out after 30 s", flush=True)
    os._exit(1)


timer = threading.Timer(30, timed_out)
timer.daemon = True
timer.start()


class Mismatch(Exception):
    def __init__(self, what, expected, got):
        super().__init__(f"{what}\n  expected {expected}\n  got      {got}")


def text(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def plain(value):
    """Converts a value of the library to JSON text; its own encoder handles HexBytes and AttributeDict."""
    return text(value) if isinstance(value, str) else Web3.to_json(value)


def equal(got, expected, what="value"):
    if plain(got) != plain(expected):
        raise Mismatch(what, plain(expected), plain(got))


def step(name, run):
    """Runs one step and prints its line; the first step that raises ends the script."""
    try:
        value = run()
    except Mismatch as error:
        print(f"FAIL {name}: {error}")
        sys.exit(1)
    except Exception as error:
        print(f"FAIL {name}: {error!r}\n{traceback.format_exc()}")
        sys.exit(1)
    print(f"ok   {name}", flush=True)
    return value


def raised(kind, run):
    """Returns the error of this kind that `run` raises; not raising is a failure."""
    try:
        value = run()
    except kind as error:
        return error
    raise Mismatch("call", kind.__name__, value)


# --- raw JSON-RPC ------------------------------------------------------------------------


def post(url, body):
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


def request(call, number=1):
    return {"jsonrpc": "2.0", "id": number, "method": call[0], "params": call[1]}


def answer(body):
    """Returns the whole result or error, without id and version."""
    return text({"error": body["error"]} if "error" in body else {"result": body["result"]})


def ask(url, call):
    return answer(post(url, request(call)))


def same(method, params):
    """Fails unless the proxy answers twice like the node (the second answer may come from the cache).

    Asks the node before and after, and tries again if its answer changed in between.
    """
    call = (method, params)
    for attempt in range(5):
        before = ask(NODE, call)
        first, second = ask(PROXY, call), ask(PROXY, call)
        if first == before and second == before:
            return before
        if before == ask(NODE, call) or attempt == 4:
            raise Mismatch(text(call), before, first if first != before else f"{second} (second time)")


def same_batch(calls):
    body = post(PROXY, [request(call, number) for number, call in enumerate(calls)])
    if not isinstance(body, list):
        raise Mismatch("batch", "a list", text(body))
    equal(len(body), len(calls), "answers in the batch")
    answers = {item["id"]: answer(item) for item in body}
    for number, call in enumerate(calls):
        expected = ask(NODE, call)
        if answers.get(number) != expected:
            raise Mismatch(f"in a batch: {text(call)}", expected, answers.get(number))


def pending_shape(url):
    """Returns only the shape of the pending block, because its timestamp changes all the time."""
    block = post(url, request(("eth_getBlockByNumber", ["pending", False])))["result"]
    return [[key, type(value).__name__] for key, value in block.items()]


# --- contracts ---------------------------------------------------------------------------

RUNTIME = {
    "bytes": "00c0ffee",  # STOP, then three bytes that never run
    # MSTORE(0, 42); LOG1(0, 32, topic 0xc0ffee00); LOG0(0, 32); STOP
    "logger": "602a600052" + "63c0ffee0060206000a1" + "60206000a0" + "00",
    # MSTORE(0, 0xdeadbeef); REVERT(28, 4)
    "reverter": "63deadbeef600052" + "6004601cfd",
}
TOPIC = "0x" + "c0ffee00".zfill(64)


def creation(runtime):
    """Returns creation code: CODECOPY the bytes after these 11 into memory and RETURN them."""
    return f"0x60{len(runtime) // 2:02x}80600b6000396000f3{runtime}"


# --- the flow ----------------------------------------------------------------------------

w3, direct = Web3(HTTPProvider(PROXY)), Web3(HTTPProvider(NODE))
account = w3.eth.account.from_key(KEY)
hashes = []  # of every transaction sent


def both(read, what="value"):
    equal(read(w3), read(direct), what)


def mined(raw):
    tx = w3.eth.send_raw_transaction(raw)
    hashes.append(tx)
    return w3.eth.wait_for_transaction_receipt(tx, timeout=60, poll_latency=0.05)


def signed(tx):
    """Returns a signed transaction whose fields come from the proxy."""
    fee = w3.eth.get_block("latest")["baseFeePerGas"] * 2 + 10**9
    tx = {
        "from": account.address,
        "nonce": w3.eth.get_transaction_count(account.address),
        "chainId": w3.eth.chain_id,
        "maxPriorityFeePerGas": 10**9,
        "maxFeePerGas": fee,
        **tx,
    }
    tx.setdefault("gas", w3.eth.estimate_gas(tx))
    return account.sign_transaction(tx)


def transfer():
    tx = signed({"to": "0x" + "33" * 20, "value": 7 * 10**9})
    # Before the transaction is sent: the proxy must not serve this null afterwards.
    raised(TransactionNotFound, lambda: w3.eth.get_transaction(tx.hash))
    raised(TransactionNotFound, lambda: w3.eth.get_transaction_receipt(tx.hash))
    receipt = mined(tx.raw_transaction)
    equal([receipt["status"], receipt["transactionHash"]], [1, tx.hash], "receipt")
    same("eth_getTransactionByHash", [tx.hash.to_0x_hex()])
    same("eth_getTransactionReceipt", [tx.hash.to_0x_hex()])


def deploy():
    addresses = {}
    for name, runtime in RUNTIME.items():
        constructor = w3.eth.contract(abi=[], bytecode=creation(runtime)).constructor()
        nonce = w3.eth.get_transaction_count(account.address)
        tx = constructor.build_transaction({"from": account.address, "nonce": nonce})
        receipt = mined(account.sign_transaction(tx).raw_transaction)
        addresses[name] = receipt["contractAddress"]
        equal(w3.eth.get_code(addresses[name]).to_0x_hex(), "0x" + runtime, f"code of {name}")
    return addresses


def log():
    receipt = mined(signed({"to": at["logger"]}).raw_transaction)
    block = receipt["blockNumber"]
    found = w3.eth.get_logs({"address": at["logger"], "fromBlock": block, "toBlock": block})
    equal([[topic.to_0x_hex() for topic in entry["topics"]] for entry in found], [[TOPIC], []], "topics")
    both(lambda w: w.eth.get_logs({"blockHash": receipt["blockHash"]}), "logs by block hash")
    return receipt


step("chain id", lambda: both(lambda w: w.eth.chain_id))
step("balance", lambda: both(lambda w: w.eth.get_balance(account.address)))
step("signed transfer and its receipt", transfer)
step("balance after the transfer", lambda: both(lambda w: w.eth.get_balance(account.address)))
at = step("three contracts deployed", deploy)
logged = step("a call that logs, and its logs", log)

block_hash, block_number, tx_hash = logged["blockHash"], logged["blockNumber"], logged["transactionHash"]


def blocks():
    for full in (False, True):
        for which in [block_number, block_hash, *TAGS]:
            both(lambda w: w.eth.get_block(which, full), f"{which}, {full}")
        equal(isinstance(w3.eth.get_block("pending", full)["transactions"], list), True, "pending block")
    equal(w3.eth.get_block_transaction_count(block_hash), 1, "count by hash")
    equal(w3.eth.get_block_transaction_count(block_number), 1, "count by number")


def transactions():
    expected = direct.eth.get_transaction(tx_hash)
    equal(w3.eth.get_transaction(tx_hash), expected, "by hash")
    equal(w3.eth.get_transaction_by_block(block_hash, 0), expected, "by block hash and index")
    equal(w3.eth.get_transaction_by_block(block_number, 0), expected, "by block number and index")
    both(lambda w: w.eth.get_transaction_receipt(tx_hash), "receipt")
    both(lambda w: w.eth.get_block_receipts(block_number), "block receipts")


def not_found():
    nothing = secrets.token_bytes(32)
    raised(TransactionNotFound, lambda: w3.eth.get_transaction(nothing))
    raised(TransactionNotFound, lambda: w3.eth.get_transaction_by_block(block_hash, 7))
    raised(TransactionNotFound, lambda: w3.eth.get_transaction_receipt(nothing))
    raised(BlockNotFound, lambda: w3.eth.get_block(nothing))
    raised(BlockNotFound, lambda: w3.eth.get_block(0xFFFFFFFF))


def unknown_method():
    def seen(w):
        manager = w.manager
        error = raised(Web3RPCError, lambda: manager.request_blocking("eth_holdfastNope", []))
        return [type(error).__name__, error.rpc_response["error"]["code"]]

    both(seen)


def revert():
    def seen(w):
        error = raised(ContractCustomError, lambda: w.eth.call({"to": at["reverter"]}))
        return [type(error).__name__, error.message, error.data]

    equal(seen(direct)[2], "0xdeadbeef", "data at the node")
    both(seen)


step("blocks by number, hash and tag", blocks)
step("the transaction by hash and by index", transactions)
step("missing content is NotFound", not_found)
step("an unknown method is an error", unknown_method)
step("revert data comes through eth_call", revert)


def mixed(w):
    """Yields 25 calls; inside a batch, web3.py only records them."""
    for number, tx in enumerate(hashes):
        yield w.eth.get_block(number)
        yield w.eth.get_balance(account.address, number)
        yield w.eth.get_transaction(tx)
        yield w.eth.get_transaction_receipt(tx)
        yield w.eth.get_code(at["bytes"], block_number - number)


def batch():
    with w3.batch_requests() as requests:
        for call in mixed(w3):
            requests.add(call)
        got = requests.execute()
    equal(len(got), 25, "answers")
    equal(got, list(mixed(direct)), "answers")


async def asynchronous():
    a3 = AsyncWeb3(AsyncHTTPProvider(PROXY))
    try:
        equal(await a3.eth.chain_id, direct.eth.chain_id, "chain id")
        got = await asyncio.gather(*mixed(a3))
        equal(list(got), list(mixed(direct)), "25 concurrent reads")
        async with a3.batch_requests() as requests:
            for call in mixed(a3):
                requests.add(call)
            got = await requests.async_execute()
        equal(list(got), list(mixed(direct)), "batch")
        try:
            await a3.eth.get_transaction(secrets.token_bytes(32))
        except TransactionNotFound:
            return
        raise Mismatch("a hash that is not there", "TransactionNotFound", "a transaction")
    finally:
        await a3.provider.disconnect()


step("batch of 25 mixed calls", batch)
step("AsyncWeb3: concurrent reads, a batch, NotFound", lambda: asyncio.run(asynchronous()))


# --- raw, before and after the block is final --------------------------------------------


def reads():
    block, number, tx = block_hash.to_0x_hex(), hex(block_number), tx_hash.to_0x_hex()
    missing = "0x" + secrets.token_hex(32)
    logger, reverter = {"to": at["logger"]}, {"to": at["reverter"]}
    calls = [("eth_chainId", []), ("net_version", [])]
    for full in (False, True):
        calls += [("eth_getBlockByNumber", [number, full]), ("eth_getBlockByHash", [block, full])]
        calls += [("eth_getBlockByNumber", [tag, full]) for tag in TAGS]
    # The index as hex, as an integer (anvil takes both), and past the end.
    for index in ("0x0", 0, "0x7", 7):
        calls.append(("eth_getTransactionByBlockHashAndIndex", [block, index]))
        calls.append(("eth_getTransactionByBlockNumberAndIndex", [number, index]))
    return calls + [
        ("eth_getBlockTransactionCountByNumber", [number]),
        ("eth_getBlockTransactionCountByHash", [block]),
        ("eth_getUncleCountByBlockNumber", [number]),
        ("eth_getUncleCountByBlockHash", [block]),
        ("eth_getTransactionByHash", [tx]),
        ("eth_getTransactionReceipt", [tx]),
        ("eth_getBlockReceipts", [number]),
        ("eth_getBlockReceipts", [block]),
        ("eth_getLogs", [{"blockHash": block}]),
        ("eth_getLogs", [{"fromBlock": number, "toBlock": number, "address": at["logger"]}]),
        ("eth_getLogs", [{"fromBlock": number, "toBlock": number, "topics": [TOPIC]}]),
        ("eth_getCode", [at["logger"], number]),
        ("eth_getBalance", [account.address, number]),
        ("eth_getTransactionCount", [account.address, number]),
        ("eth_getStorageAt", [at["logger"], "0x0", number]),
        ("eth_call", [logger, number]),
        ("eth_call", [reverter, number]),
        ("eth_call", [reverter, "latest"]),
        ("eth_getTransactionByHash", [missing]),
        ("eth_getTransactionReceipt", [missing]),
        ("eth_getBlockByHash", [missing, False]),
        ("eth_getBlockByNumber", ["0xffffffff", False]),
        ("eth_getBlockReceipts", ["0xffffffff"]),
    ]


calls = reads()


def each():
    for call in calls:
        same(*call)


def past_the_end():
    for index in ("0x7", 7):
        equal(same("eth_getTransactionByBlockHashAndIndex", [block_hash.to_0x_hex(), index]), NULL)
        equal(same("eth_getTransactionByBlockNumberAndIndex", [hex(block_number), index]), NULL)


def future_block():
    call = ("eth_getBlockByNumber", [hex(direct.eth.block_number + 60), False])
    same(*call)
    # Mines directly at the node; after 70 blocks, the blocks that the tests read are final.
    post(NODE, request(("anvil_mine", [hex(70)])))
    if same(*call) == NULL:
        raise Mismatch("the mined block", "a block", "null")


fixed = [call for call in calls if not any(tag in call[1] for tag in TAGS)]

step(f"{len(calls)} raw reads are the node's, asked twice", each)
step("a past-the-end index is null", past_the_end)
step("pending block has the shape of the node's", lambda: equal(pending_shape(PROXY), pending_shape(NODE)))
step("a future block is null until it is mined", future_block)
step("the same reads once the block is final", each)
step(f"batch of {len(fixed)} raw reads", lambda: same_batch(fixed))
