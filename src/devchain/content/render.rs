//! JSON texts of a block, rendered at first use and cached.

use super::transactions::Tx;
use alloy_consensus::transaction::TransactionInfo;
use alloy_rpc_types_eth::Transaction;
use bytes::Bytes;
use serde::Serialize;
use std::{ops::Range, sync::OnceLock};

/// The JSON texts of a block that have been rendered so far.
#[derive(Debug, Default)]
pub(in crate::devchain) struct Rendered {
    pub(super) full: OnceLock<List>,
    pub(super) hashes: OnceLock<Bytes>,
    pub(super) receipts: OnceLock<List>,
}

/// A JSON text that contains a list, and the range of each item of the list.
#[derive(Debug)]
pub(super) struct List {
    pub(super) text: Bytes,
    items: Vec<Range<usize>>,
}

// === impl List ===

impl List {
    pub(super) fn new(head: &str, items: impl Iterator<Item = String>, tail: &str) -> Self {
        let mut text = String::from(head);
        let mut ranges = Vec::new();
        for item in items {
            if !ranges.is_empty() {
                text.push(',');
            }
            ranges.push(text.len()..text.len() + item.len());
            text.push_str(&item);
        }
        text.push_str(tail);
        Self { text: text.into(), items: ranges }
    }

    pub(super) fn item(&self, index: usize) -> Option<Bytes> {
        self.items.get(index).map(|range| self.text.slice(range.clone()))
    }
}

/// Renders a transaction that is in no block.
pub(in crate::devchain) fn pending_json(tx: &Tx) -> Bytes {
    json(&Transaction::from_transaction(tx.as_ref().clone(), TransactionInfo::default())).into()
}

/// Renders a value as JSON text.
pub(in crate::devchain) fn json<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).expect("values of the chain have string keys and no failing serializers")
}
