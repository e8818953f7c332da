//! Verdicts on answers that are not proved, and differences between nodes.

use alloy_consensus::{EMPTY_ROOT_HASH, Header};
use alloy_primitives::B256;
use holdfast::{
    eth::{At, Tag, TxHash, TxPosition},
    verify::{self, Failure, Level, prove},
};
use serde_json::{Map, Value, json};

use super::{block, block_with_hashes, receipts, single_transaction};
use crate::support::vectors::{Fork, vector};

/// A block of a fork with its receipts, for tests to change.
struct Draft {
    block: Value,
    receipts: Value,
}

impl Draft {
    fn of(fork: Fork) -> Self {
        let vector = vector(fork);
        let read = |text: &str| serde_json::from_str(text).unwrap();
        Self { block: read(&vector.block), receipts: read(&vector.receipts) }
    }

    /// Returns the first transaction of a type in the block.
    fn transaction(&mut self, kind: &str) -> &mut Map<String, Value> {
        let transactions = self.block["transactions"].as_array_mut().unwrap();
        transactions.iter_mut().find(|tx| tx["type"] == kind).unwrap().as_object_mut().unwrap()
    }

    fn verdict(&self) -> Result<(), Failure> {
        let block = block(self.block.to_string().as_bytes())?;
        receipts(self.receipts.to_string().as_bytes(), &block).map(|_| ())
    }

    /// Returns the failure's name in logs and metrics, and its message.
    fn refused(&self) -> (&'static str, String) {
        let failure = self.verdict().unwrap_err();
        (failure.as_str(), failure.to_string())
    }
}

// ## Failures name the fault

#[test]
fn a_failure_names_the_part_the_member_and_both_values() {
    let mut draft = Draft::of(Fork::Prague);
    draft.block["transactions"][7]["from"] = json!("0x0000000000000000000000000000000000000001");
    let (name, message) = draft.refused();
    assert_eq!(name, "signer");
    assert!(
        message.starts_with("transactions[7].from is 0x0000000000000000000000000000000000000001, not 0x")
    );

    let mut draft = Draft::of(Fork::Prague);
    draft.receipts[3]["logs"][1]["logIndex"] = json!("0x9");
    assert_eq!(draft.refused(), ("derived", "receipts[3].logs[1].logIndex is 0x9, not 0x2".to_owned()));

    let mut draft = Draft::of(Fork::Prague);
    draft.block["withdrawals"][1].as_object_mut().unwrap().remove("amount");
    let message = "withdrawals[1].amount is missing or null; the answer cannot be proved without it";
    assert_eq!(draft.refused(), ("unprovable", message.to_owned()));
}

#[test]
fn long_values_are_cut_short_in_messages() {
    let mut draft = Draft::of(Fork::Prague);
    draft.receipts[1]["logsBloom"] = json!(format!("0x{}", "ab".repeat(256)));
    let (name, message) = draft.refused();
    assert_eq!(name, "bloom");
    assert!(message.len() < 200, "{message}");
    assert!(message.contains("is 0xababababababababababab…abababab (514 characters), not 0x00"), "{message}");

    let mut draft = Draft::of(Fork::Prague);
    draft.block["transactions"][0]["input"] = json!("0x\u{1b}[2J\u{202e}".repeat(100));
    let (_, message) = draft.refused();
    assert!(
        message.len() < 200
            && message.chars().all(|shown| shown == '…' || shown.is_ascii_graphic() || shown == ' ')
    );
}

#[test]
fn each_hash_and_root_has_its_own_reason() {
    let wrong = json!(format!("0x{:064x}", 0xbad));
    let reason = |change: &dyn Fn(&mut Draft)| {
        let mut draft = Draft::of(Fork::Prague);
        change(&mut draft);
        draft.refused().0
    };
    assert_eq!(reason(&|draft| draft.block["stateRoot"] = wrong.clone()), "header_hash");
    assert_eq!(reason(&|draft| draft.block["transactions"][0]["nonce"] = json!("0x63")), "transaction_hash");
    assert_eq!(reason(&|draft| draft.block["withdrawals"][0]["amount"] = json!("0x1")), "withdrawals_root");
    assert_eq!(reason(&|draft| draft.receipts[1]["logs"][0]["data"] = json!("0x01")), "receipts_root");
    assert_eq!(reason(&|draft| draft.receipts[0]["status"] = json!("0x0")), "receipts_root");
    assert_eq!(reason(&|draft| draft.receipts[0]["root"] = wrong.clone()), "unprovable");
    assert_eq!(reason(&|draft| draft.receipts[0]["blockHash"] = wrong.clone()), "names");
}

#[test]
fn true_content_under_another_header_is_refused() {
    // The test computes the header's hash again, so that only the checked member is wrong.
    let reason = |forge: fn(&mut Header)| {
        let mut draft = Draft::of(Fork::London);
        let told: alloy_rpc_types_eth::Header = serde_json::from_value(draft.block.clone()).unwrap();
        let mut header = told.inner;
        forge(&mut header);
        draft.block["transactionsRoot"] = json!(header.transactions_root);
        draft.block["receiptsRoot"] = json!(header.receipts_root);
        draft.block["logsBloom"] = json!(header.logs_bloom);
        let hash = json!(header.hash_slow());
        draft.block["hash"] = hash.clone();
        for part in [&mut draft.block["transactions"], &mut draft.receipts] {
            for part in part.as_array_mut().unwrap() {
                part["blockHash"] = hash.clone();
                for log in part.get_mut("logs").into_iter().flat_map(|logs| logs.as_array_mut().unwrap()) {
                    log["blockHash"] = hash.clone();
                }
            }
        }
        draft.verdict().map_err(|failure| failure.as_str())
    };
    assert_eq!(reason(|_| ()), Ok(()));
    assert_eq!(reason(|header| header.transactions_root = header.state_root), Err("transactions_root"));
    assert_eq!(reason(|header| header.receipts_root = header.state_root), Err("receipts_root"));
    assert_eq!(reason(|header| header.logs_bloom.0[0] ^= 1), Err("bloom"));
}

#[test]
fn list_under_a_zero_root_is_not_proved_even_if_empty() {
    for (root, level) in [(EMPTY_ROOT_HASH, Level::Proved), (B256::ZERO, Level::Partial)] {
        let mut draft = Draft::of(Fork::London);
        (draft.block["transactions"], draft.block["transactionsRoot"]) = (json!([]), json!(root));
        let told: alloy_rpc_types_eth::Header = serde_json::from_value(draft.block.clone()).unwrap();
        draft.block["hash"] = json!(told.inner.hash_slow());
        assert_eq!(block_with_hashes(draft.block.to_string().as_bytes()).unwrap().level(), level, "{root}");
    }
}

#[test]
fn receipts_with_state_roots_are_wrong_under_another_root() {
    let mut draft = Draft::of(Fork::Frontier);
    assert_eq!(draft.verdict(), Ok(()));
    draft.receipts[0]["root"] = draft.block["parentHash"].clone();
    assert_eq!(draft.refused().0, "receipts_root");
}

#[test]
fn missing_member_is_named_despite_a_zero_root() {
    let mut draft = Draft::of(Fork::Prague);
    draft.block["stateRoot"] = json!(B256::ZERO);
    draft.block.as_object_mut().unwrap().remove("extraData");
    let message = "extraData is missing or null; the answer cannot be proved without it";
    assert_eq!(draft.refused(), ("unprovable", message.to_owned()));
}

// ## Unknown members are no failure

#[test]
fn unknown_members_pass_if_all_hashes_match() {
    let mut draft = Draft::of(Fork::Prague);
    draft.block["author"] = json!("0x00");
    draft.transaction("0x2").insert("raw".to_owned(), json!([[["deep"]]]));
    draft.receipts[0]["l1Fee"] = json!(7);
    draft.receipts[1]["logs"][0]["type"] = json!("mined");
    assert_eq!(draft.verdict(), Ok(()));
}

#[test]
fn wrong_hash_beside_an_unknown_member_is_unprovable() {
    let mut draft = Draft::of(Fork::Prague);
    draft.block["stateRoot"] = draft.block["parentHash"].clone();
    draft.block["nextForksRoot"] = Value::Null;
    assert_eq!(draft.refused().0, "header_hash");
    draft.block["nextForksRoot"] = draft.block["parentHash"].clone();
    let message = "nextForksRoot is unknown to this version, so the hash cannot be checked";
    assert_eq!(draft.refused(), ("unprovable", message.to_owned()));

    let mut draft = Draft::of(Fork::Prague);
    draft.block["transactions"][2]["gas"] = json!("0x1");
    draft.block["transactions"][2]["feeCurrency"] = json!("0x2");
    let message = "transactions[2].feeCurrency is unknown to this version, so the hash cannot be checked";
    assert_eq!(draft.refused(), ("unprovable", message.to_owned()));

    let mut draft = Draft::of(Fork::Prague);
    draft.receipts[5]["status"] = json!("0x0");
    draft.receipts[6]["depositNonce"] = json!("0x2");
    let message = "receipts[6].depositNonce is unknown to this version, so the hash cannot be checked";
    assert_eq!(draft.refused(), ("unprovable", message.to_owned()));
}

#[test]
fn a_transaction_of_an_unknown_type_cannot_be_proved() {
    let mut draft = Draft::of(Fork::Prague);
    draft.transaction("0x2")["type"] = json!("0x7e");
    let (name, message) = draft.refused();
    assert_eq!(name, "unprovable");
    assert!(message.contains("type 0x7e is unknown"), "{message}");
}

#[test]
fn unknown_blob_price_is_unprovable_since_prague() {
    for (fork, verdict) in [(Fork::Cancun, "derived"), (Fork::Prague, "unprovable")] {
        let mut draft = Draft::of(fork);
        let at = draft.block["transactions"]
            .as_array()
            .unwrap()
            .iter()
            .position(|tx| tx["type"] == "0x3")
            .unwrap();
        draft.receipts[at]["blobGasPrice"] = json!("0x12345");
        assert_eq!(draft.refused().0, verdict);
    }
}

// ## Answers that only look true

#[test]
fn no_fork_may_be_skipped_in_a_header() {
    // A header is hashed as a list of values without names, so moving a value to another name does not change the hash.
    for (fork, name, other) in [
        (Fork::London, "baseFeePerGas", "slotNumber"),
        (Fork::London, "baseFeePerGas", "blobGasUsed"),
        (Fork::Shanghai, "withdrawalsRoot", "requestsHash"),
        (Fork::Cancun, "parentBeaconBlockRoot", "requestsHash"),
        (Fork::Prague, "requestsHash", "blockAccessListHash"),
    ] {
        let mut draft = Draft::of(fork);
        let members = draft.block.as_object_mut().unwrap();
        let value = members.remove(name).unwrap();
        members.insert(other.to_owned(), value);
        if name == "withdrawalsRoot" {
            members.remove("withdrawals");
        }
        let message = format!("{name} is missing or null; the answer cannot be proved without it");
        assert_eq!(draft.refused(), ("unprovable", message));
    }
}

#[test]
fn repeated_member_names_are_refused() {
    let draft = Draft::of(Fork::Prague);
    let (block_text, receipts_text) = (draft.block.to_string(), draft.receipts.to_string());
    let proved = block(block_text.as_bytes()).unwrap();
    // Repeats the first member after each opening brace, with an escape in its name.
    let doubles = |text: &str| -> Vec<String> {
        let braces = text.match_indices('{').map(|(at, _)| at + 1);
        let twice = |at: usize| {
            let name = text[at + 1..].split('"').next().unwrap();
            let escaped = format!("\\u{:04x}{}", name.as_bytes()[0], &name[1..]);
            format!("{}\"{escaped}\":null,{}", &text[..at], &text[at..])
        };
        braces.map(twice).collect()
    };
    let blocks = doubles(&block_text);
    assert!(blocks.len() > 12);
    for text in blocks {
        assert!(block(text.as_bytes()).is_err(), "{text}");
    }
    for text in doubles(&receipts_text) {
        assert!(receipts(text.as_bytes(), &proved).is_err(), "{text}");
    }
}

#[test]
fn receipts_are_not_proved_by_an_unproved_block() {
    let draft = Draft::of(Fork::London);
    let text = draft.receipts.to_string();
    let structural = verify::block(draft.block.to_string().as_bytes(), At::Tag(Tag::Latest)).unwrap();
    assert_eq!(receipts(text.as_bytes(), &structural).unwrap().level(), Level::Structural);
}

#[test]
fn receipts_are_not_proved_by_another_block() {
    let (one, other) = (Draft::of(Fork::London), Draft::of(Fork::Shanghai));
    let text = one.receipts.to_string();
    let own = block(one.block.to_string().as_bytes()).unwrap();
    let other = block(other.block.to_string().as_bytes()).unwrap();
    let unproved = || verify::receipts(text.as_bytes(), own.hash(), own.header().number, None).unwrap();
    assert!(prove::receipts(unproved(), &own).is_ok());
    assert_eq!(prove::receipts(unproved(), &other).unwrap_err().as_str(), "names");
}

/// Structural checks alone find these faults, because the block need not be proved.
#[test]
fn structure_of_a_block_limits_its_parts() {
    let mut draft = Draft::of(Fork::London);
    let whole = verify::block(draft.block.to_string().as_bytes(), At::Tag(Tag::Latest)).unwrap();
    draft.receipts.as_array_mut().unwrap().pop();
    let short = receipts(draft.receipts.to_string().as_bytes(), &whole);
    assert_eq!(short.unwrap_err().as_str(), "count");

    let second = draft.block["transactions"][1].to_string();
    let at = |index: Option<u64>| {
        let asked = At::Hash(whole.hash());
        verify::single_transaction_at(second.as_bytes(), asked, index.map(TxPosition)).is_ok()
    };
    assert_eq!([at(Some(0)), at(Some(1)), at(Some(2)), at(None)], [false, true, false, true]);
}

// ## Differences between nodes

#[test]
fn nodes_may_write_a_transaction_in_their_own_ways() {
    let mut draft = Draft::of(Fork::Prague);
    let time = draft.block["timestamp"].clone();
    let seconds = u64::from_str_radix(&time.as_str().unwrap()[2..], 16).unwrap();
    for transaction in draft.block["transactions"].as_array_mut().unwrap() {
        let transaction = transaction.as_object_mut().unwrap();
        let input = transaction["input"].clone();
        transaction.insert("data".to_owned(), input);
        transaction.insert("blockTimestamp".to_owned(), json!(seconds));
        for half in ["r", "s"] {
            let digits = transaction[half].as_str().unwrap()[2..].to_owned();
            transaction[half] = json!(format!("0x{digits:0>64}"));
        }
        if transaction["type"] == "0x0" {
            transaction.insert("accessList".to_owned(), Value::Null);
            transaction.insert("maxFeePerGas".to_owned(), Value::Null);
            let v = u128::from_str_radix(&transaction["v"].as_str().unwrap()[2..], 16).unwrap();
            transaction.insert("yParity".to_owned(), json!(format!("{:#x}", (v + 1) % 2)));
        } else {
            transaction.remove("v");
        }
    }
    assert_eq!(draft.verdict(), Ok(()));
    let input = draft.transaction("0x2").remove("input").unwrap();
    assert_eq!(draft.refused().0, "unprovable");
    draft.transaction("0x2").insert("input".to_owned(), input);
    draft.transaction("0x0")["yParity"] = json!("0x2");
    assert_eq!(draft.refused().0, "member");
}

#[test]
fn repeated_values_must_agree() {
    let mut draft = Draft::of(Fork::Prague);
    draft.transaction("0x2").insert("data".to_owned(), json!("0x00"));
    assert_eq!(draft.refused().0, "derived");

    for (v, verdict) in [("yParity", Ok(())), ("nonce", Err("derived"))] {
        let mut draft = Draft::of(Fork::Prague);
        let authorization = &mut draft.transaction("0x4")["authorizationList"][0];
        authorization["v"] = authorization[v].clone();
        assert_eq!(draft.verdict().map_err(|failure| failure.as_str()), verdict);
    }

    let mut draft = Draft::of(Fork::London);
    let time = u64::from_str_radix(&draft.block["timestamp"].as_str().unwrap()[2..], 16).unwrap();
    draft.receipts[0]["blockTimestamp"] = json!(time);
    assert_eq!(draft.verdict(), Ok(()));
    draft.receipts[0]["blockTimestamp"] = json!(time + 1);
    assert_eq!(draft.refused().0, "derived");
}

#[test]
fn legacy_transaction_has_no_members_of_later_types() {
    for (name, value) in
        [("accessList", json!([])), ("maxFeePerGas", json!("0x1")), ("authorizationList", json!([]))]
    {
        let mut draft = Draft::of(Fork::Prague);
        draft.transaction("0x0").insert(name.to_owned(), value);
        assert_eq!(draft.refused().0, "derived", "{name}");
    }
}

#[test]
fn nodes_may_give_every_receipt_a_blob_price() {
    for fork in [Fork::Cancun, Fork::Prague] {
        let mut draft = Draft::of(fork);
        let all = draft.receipts.as_array_mut().unwrap();
        let price = all.iter().find_map(|receipt| receipt.get("blobGasPrice")).unwrap().clone();
        for receipt in all.iter_mut() {
            receipt["blobGasPrice"] = price.clone();
            if receipt["type"] != "0x3" {
                receipt["blobGasUsed"] = json!("0x0");
            }
        }
        assert_eq!(draft.verdict(), Ok(()));
        draft.receipts[0]["blobGasUsed"] = json!("0x20000");
        assert_eq!(draft.refused().0, "derived");
    }
}

// ## Single transactions, and blocks with hashes

#[test]
fn single_transaction_is_proved_except_for_its_place() {
    let draft = Draft::of(Fork::Prague);
    let proved = block(draft.block.to_string().as_bytes()).unwrap();
    for index in 0..proved.len() {
        assert_eq!(single_transaction(&proved, index).unwrap().level(), Level::Partial);
        let transaction = draft.block["transactions"][index].as_object().unwrap();
        let hash: TxHash = transaction["hash"].as_str().unwrap().parse().unwrap();
        for name in transaction.keys() {
            let mut changed = transaction.clone();
            changed[name] = json!("0x63");
            let text = Value::Object(changed).to_string();
            let verdict = verify::single_transaction(text.as_bytes(), hash)
                .and_then(|single| prove::single_transaction(single, None));
            let unproved = ["blockNumber", "transactionIndex", "blockTimestamp"].contains(&name.as_str());
            assert_eq!(verdict.is_ok(), unproved, "{name}");
        }
        if let Some(tip) = transaction.get("maxPriorityFeePerGas") {
            // The gas price depends on the base fee, which is not known here.
            let mut cheaper = transaction.clone();
            cheaper["gasPrice"] = tip.clone();
            let text = Value::Object(cheaper).to_string();
            let single = verify::single_transaction(text.as_bytes(), hash).unwrap();
            assert!(prove::single_transaction(single, None).is_ok());
        }
    }
}

#[test]
fn pending_transaction_is_proved_like_a_mined_one() {
    let mut draft = Draft::of(Fork::Prague);
    let transaction = draft.transaction("0x2");
    for name in ["blockHash", "blockNumber", "transactionIndex", "blockTimestamp"] {
        transaction[name] = Value::Null;
    }
    transaction["gasPrice"] = transaction["maxFeePerGas"].clone();
    let hash: TxHash = transaction["hash"].as_str().unwrap().parse().unwrap();
    let text = Value::Object(transaction.clone()).to_string();
    let single =
        prove::single_transaction(verify::single_transaction(text.as_bytes(), hash).unwrap(), None).unwrap();
    assert_eq!((single.level(), single.place()), (Level::Partial, None));
}

#[test]
fn block_with_hashes_is_proved_by_its_header() {
    let mut draft = Draft::of(Fork::Prague);
    draft.block["transactions"] = json!([draft.block["parentHash"]]);
    assert_eq!(block_with_hashes(draft.block.to_string().as_bytes()).unwrap().level(), Level::Partial);
    draft.block["gasUsed"] = json!("0x1");
    assert_eq!(block_with_hashes(draft.block.to_string().as_bytes()).unwrap_err().as_str(), "header_hash");
}

#[test]
fn gas_of_a_single_receipt_fits_the_sum() {
    let draft = Draft::of(Fork::Prague);
    let proved = block(draft.block.to_string().as_bytes()).unwrap();
    let verdict = |index: usize, used: &str, sum: Option<&str>| {
        let mut receipt = draft.receipts[index].clone();
        let hash: TxHash = receipt["transactionHash"].as_str().unwrap().parse().unwrap();
        receipt["gasUsed"] = json!(used);
        if let Some(sum) = sum {
            receipt["cumulativeGasUsed"] = json!(sum);
        }
        let single = verify::single_receipt(receipt.to_string().as_bytes(), hash).unwrap();
        prove::single_receipt(single, &proved).map(drop).map_err(|failure| failure.as_str())
    };
    // Only the first transaction of a block has used all the gas so far.
    assert_eq!(verdict(0, "0x1", Some("0x1")), Ok(()));
    assert_eq!(verdict(0, "0x1", None), Err("derived"));
    assert_eq!(verdict(1, "0x1", None), Ok(()));
    assert_eq!(verdict(1, "0x1", Some("0x2")), Ok(()));
    assert_eq!(verdict(1, "0x1", Some("0x1")), Err("derived"));
}
