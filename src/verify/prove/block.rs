//! Proves a block's content against the roots in its header.

use alloy_consensus::{
    Header,
    proofs::{calculate_withdrawals_root, ordered_trie_root_encoded},
};
use alloy_eips::eip4895::Withdrawal;
use alloy_primitives::B256;
use rayon::prelude::*;

use super::{
    object::Object,
    transaction::{self, Scene},
    value::Value,
};
use crate::verify::{Failure, Part, Reason};

/// Minimum number of transactions in a block for which all proof threads share the recovery of signers. Recovering a
/// signer takes about 50 µs, and handing work to another thread about 10 µs.
const SPREAD: usize = 16;

/// Maximum number of uncles that the protocol has ever allowed.
const MOST_UNCLES: usize = 2;

/// Checks the lists other than the transactions: uncles and withdrawals.
pub(super) fn lists(block: &Object<'_>, header: &Header) -> Result<(), Failure> {
    uncles(block, header)?;
    withdrawals(block, header).map(drop)
}

/// Proves all transactions and their root.
pub(super) fn transactions(
    block: &Object<'_>,
    header: &Header,
    chain_id: Option<u64>,
) -> Result<(), Failure> {
    let texts = block.list("transactions")?;
    let scene = Scene { base_fee: header.base_fee_per_gas, timestamp: header.timestamp };
    let prove = |(index, text): (usize, &&str)| {
        transaction::prove(text, Some(Part::Transaction(index)), Some(scene), chain_id)
    };
    let encoded: Vec<_> = if texts.len() < SPREAD {
        texts.iter().enumerate().map(prove).collect()
    } else {
        texts.par_iter().enumerate().map(prove).collect()
    };
    // All results are collected before the search for a failure, so that the first failure in the list is returned, not
    // the failure that some thread found first.
    let encoded = encoded.into_iter().collect::<Result<Vec<_>, _>>()?;
    transactions_root(&encoded, header)
}

/// Compares the root of encoded transactions with the root in the header.
pub(super) fn transactions_root(encoded: &[Vec<u8>], header: &Header) -> Result<(), Failure> {
    let out = ordered_trie_root_encoded(encoded);
    root(Reason::TransactionsRoot, "transactionsRoot", out, header.transactions_root)
}

/// Checks the list of uncles. The headers of uncles are not in a block's JSON, so this function cannot check their
/// hashes. It checks that the list is empty exactly if the header says so, and that it has at most [`MOST_UNCLES`]
/// different hashes. Returns their number.
pub(super) fn uncles(block: &Object<'_>, header: &Header) -> Result<usize, Failure> {
    let uncles = block.values::<B256>("uncles")?;
    let twice = uncles.iter().enumerate().any(|(at, uncle)| uncles[..at].contains(uncle));
    if uncles.len() > MOST_UNCLES || twice {
        let most = format!("at most {MOST_UNCLES} different hashes");
        return Err(block.wrong(Reason::Derived, "uncles", &most));
    }
    let (expected, got) = match (header.ommers_hash_is_empty(), uncles.len()) {
        (true, 0) | (false, 1..) => return Ok(uncles.len()),
        (true, some) => ("empty", format!("{some} hashes")),
        (false, none) => ("one or more, as sha3Uncles requires", format!("{none} hashes")),
    };
    Err(Failure::field(Reason::Derived, None, "uncles", expected, got))
}

/// Proves the withdrawals by their root, and returns them; `None` before Shanghai.
pub(super) fn withdrawals(block: &Object<'_>, header: &Header) -> Result<Option<Vec<Withdrawal>>, Failure> {
    let Some(expected) = header.withdrawals_root else {
        return block.must_not_be("withdrawals").map(|()| None);
    };
    let read = |(index, text)| -> Result<_, Failure> {
        let withdrawal = Object::read(text, Some(Part::Withdrawal(index)))?;
        Ok(Withdrawal {
            index: withdrawal.get("index")?,
            validator_index: withdrawal.get("validatorIndex")?,
            address: withdrawal.get("address")?,
            amount: withdrawal.get("amount")?,
        })
    };
    let withdrawals =
        block.list("withdrawals")?.into_iter().enumerate().map(read).collect::<Result<Vec<_>, _>>()?;
    root(Reason::WithdrawalsRoot, "withdrawalsRoot", calculate_withdrawals_root(&withdrawals), expected)?;
    Ok(Some(withdrawals))
}

/// Compares the computed root of a list with the root in the proved header.
pub(super) fn root(reason: Reason, field: &'static str, out: B256, header: B256) -> Result<(), Failure> {
    if out == header {
        return Ok(());
    }
    if header.is_zero() {
        return Err(Failure::Unprovable { part: None, what: format!("a zero {field}") });
    }
    Err(Failure::field(reason, None, field, header.shown(), out.shown()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_different_uncles_are_allowed() {
        let (some, none) = (Header { ommers_hash: B256::ZERO, ..Header::default() }, Header::default());
        let count = |header: &Header, hashes: &[u8]| {
            let hashes: Vec<_> = hashes.iter().map(|byte| B256::repeat_byte(*byte)).collect();
            let text = serde_json::json!({ "uncles": hashes }).to_string();
            uncles(&Object::read(&text, None).unwrap(), header).ok()
        };
        assert_eq!([count(&some, &[1]), count(&some, &[1, 2])], [Some(1), Some(2)]);
        assert_eq!([count(&some, &[]), count(&some, &[1, 1]), count(&some, &[1, 2, 3])], [None; 3]);
        assert_eq!([count(&none, &[]), count(&none, &[1])], [Some(0), None]);
    }

    /// Chains that compute no roots write zero.
    #[test]
    fn zero_root_is_unprovable_and_another_is_wrong() {
        let compare = |header| root(Reason::ReceiptsRoot, "receiptsRoot", B256::repeat_byte(1), header);
        assert_eq!(compare(B256::repeat_byte(1)), Ok(()));
        assert!(compare(B256::ZERO).unwrap_err().is_unprovable());
        assert_eq!(compare(B256::repeat_byte(2)).unwrap_err().as_str(), "receipts_root");
    }
}
