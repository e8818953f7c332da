//! A block as JSON: rendered when first asked for, then kept.

use super::block::Block;
use alloy_consensus::{BlockBody, transaction::TransactionInfo};
use alloy_primitives::U256;
use alloy_rpc_types_eth::{BlockTransactions, Header, Log, Transaction, TransactionReceipt};
use bytes::Bytes;
use serde::Serialize;
use std::{ops::Range, sync::OnceLock};

/// What has been rendered of a block so far.
#[derive(Debug, Default)]
pub(in crate::devchain) struct Rendered {
    full: OnceLock<List>,
    hashes: OnceLock<Bytes>,
    receipts: OnceLock<List>,
}

/// A JSON text with a list in it, and where each item of the list lies.
#[derive(Debug)]
struct List {
    text: Bytes,
    items: Vec<Range<usize>>,
}

/// Where a block without transactions has room for them.
const NO_TRANSACTIONS: &str = r#""transactions":[]"#;

// === impl Block ===

impl Block {
    /// The block with whole transactions.
    pub(in crate::devchain) fn full_json(&self) -> Bytes {
        self.full().text.clone()
    }

    /// The block with hashes in place of transactions.
    pub(in crate::devchain) fn hashes_json(&self) -> Bytes {
        let render = || self.around(self.transactions.iter().map(|tx| json(tx.tx_hash()))).text;
        self.rendered.hashes.get_or_init(render).clone()
    }

    /// The block's own members without its content, as a subscription announces it.
    pub(in crate::devchain) fn header_json(&self) -> String {
        json(&Header::from_consensus(self.header.clone(), None, None))
    }

    /// All receipts.
    pub(in crate::devchain) fn receipts_json(&self) -> Bytes {
        self.receipts().text.clone()
    }

    /// One transaction, a slice of the full block.
    pub(in crate::devchain) fn transaction_json(&self, index: usize) -> Option<Bytes> {
        self.full().item(index)
    }

    /// One receipt, a slice of all receipts.
    pub(in crate::devchain) fn receipt_json(&self, index: usize) -> Option<Bytes> {
        self.receipts().item(index)
    }

    fn full(&self) -> &List {
        self.rendered.full.get_or_init(|| {
            let transactions = (0..self.transactions.len()).map(|index| json(&self.transaction(index)));
            self.around(transactions)
        })
    }

    fn receipts(&self) -> &List {
        self.rendered.receipts.get_or_init(|| {
            let mut logs_before = 0;
            let receipts = (0..self.outcomes.len()).map(|index| {
                let receipt = self.receipt(index, logs_before);
                logs_before += receipt.inner.logs().len() as u64;
                json(&receipt)
            });
            List::new("[", receipts, "]")
        })
    }

    /// The block's own members around a list of transactions.
    fn around(&self, transactions: impl Iterator<Item = String>) -> List {
        let body = BlockBody {
            transactions: self.transactions.iter().map(|tx| tx.inner().clone()).collect(),
            ommers: Vec::new(),
            withdrawals: Some(self.withdrawals.clone()),
        };
        let size = alloy_consensus::Block::rlp_length_for(self.header.inner(), &body);
        let header = Header::from_consensus(self.header.clone(), None, Some(U256::from(size)));
        let shell = alloy_rpc_types_eth::Block::<Transaction> {
            header,
            uncles: Vec::new(),
            transactions: BlockTransactions::Hashes(Vec::new()),
            withdrawals: Some(self.withdrawals.clone()),
        };
        let shell = json(&shell);
        let at = shell.find(NO_TRANSACTIONS).expect("a block is rendered with its transactions");
        let (head, tail) = shell.split_at(at + NO_TRANSACTIONS.len() - "]".len());
        List::new(head, transactions, tail)
    }

    fn transaction(&self, index: usize) -> Transaction {
        let tx = &self.transactions[index];
        let info = TransactionInfo {
            hash: Some(*tx.tx_hash()),
            index: Some(index as u64),
            block_hash: Some(self.hash()),
            block_number: Some(self.number()),
            base_fee: Some(self.base_fee()),
            block_timestamp: Some(self.header.timestamp),
        };
        Transaction::from_transaction(tx.as_ref().clone(), info)
    }

    fn receipt(&self, index: usize, logs_before: u64) -> TransactionReceipt {
        use alloy_consensus::Transaction as _;
        let (tx, outcome) = (&self.transactions[index], &self.outcomes[index]);
        let mut log_index = logs_before;
        let inner = outcome.receipt.clone().map_logs(|inner| {
            let log = Log {
                inner,
                block_hash: Some(self.hash()),
                block_number: Some(self.number()),
                block_timestamp: Some(self.header.timestamp),
                transaction_hash: Some(*tx.tx_hash()),
                transaction_index: Some(index as u64),
                log_index: Some(log_index),
                removed: false,
            };
            log_index += 1;
            log
        });
        TransactionReceipt {
            inner,
            transaction_hash: *tx.tx_hash(),
            transaction_index: Some(index as u64),
            block_hash: Some(self.hash()),
            block_number: Some(self.number()),
            gas_used: outcome.gas_used,
            effective_gas_price: outcome.gas_price,
            blob_gas_used: tx.blob_gas_used(),
            blob_gas_price: tx.blob_gas_used().map(|_| self.blob_fee()),
            from: tx.signer(),
            to: tx.to(),
            contract_address: outcome.created,
        }
    }
}

// === impl List ===

impl List {
    fn new(head: &str, items: impl Iterator<Item = String>, tail: &str) -> Self {
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

    fn item(&self, index: usize) -> Option<Bytes> {
        self.items.get(index).map(|range| self.text.slice(range.clone()))
    }
}

/// A transaction that is in no block.
pub(in crate::devchain) fn pending_json(tx: &super::transactions::Tx) -> Bytes {
    json(&Transaction::from_transaction(tx.as_ref().clone(), TransactionInfo::default())).into()
}

/// A value as JSON text.
pub(in crate::devchain) fn json<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).expect("values of the chain have string keys and no failing serializers")
}
