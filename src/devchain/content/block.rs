//! A block: its header, its transactions, their outcomes and the state after it.

use super::{
    accounts::{Account, Cast},
    dice::{Dice, digest},
    draft::Prices,
    execute::{Env, TxOutcome, execute},
    render::{List, Rendered, json},
    transactions::{BLOBS, Tx},
    world::World,
};
use crate::devchain::config::Config;
use alloy_consensus::{
    BlockBody, Header, Transaction as _, TxEnvelope,
    proofs::{calculate_withdrawals_root, ordered_trie_root_with_encoder},
    transaction::TransactionInfo,
};
use alloy_eips::{
    eip1559::BaseFeeParams,
    eip2718::Encodable2718,
    eip4895::{Withdrawal, Withdrawals},
    eip7685::EMPTY_REQUESTS_HASH,
};
use alloy_primitives::{B256, Bytes, Sealable, Sealed, U256, bytes};
use alloy_rpc_types_eth::{BlockTransactions, Log, Transaction, TransactionReceipt};
use std::sync::Arc;

/// A block with all data that the node serves about it.
#[derive(Debug)]
pub(in crate::devchain) struct Block {
    pub(in crate::devchain) header: Sealed<Header>,
    pub(in crate::devchain) transactions: Vec<Tx>,
    pub(in crate::devchain) outcomes: Vec<TxOutcome>,
    pub(in crate::devchain) withdrawals: Withdrawals,
    /// The state after the block.
    pub(in crate::devchain) world: World,
    pub(in crate::devchain) rendered: Rendered,
}

/// The empty list in the JSON of a block, into which rendering inserts the transactions.
const NO_TRANSACTIONS: &str = r#""transactions":[]"#;

/// The rules by which all blocks of a chain are built.
#[derive(Clone, Debug)]
pub(in crate::devchain) struct ChainRules {
    pub(in crate::devchain) config: Config,
    pub(in crate::devchain) cast: Arc<Cast>,
}

/// Withdrawals per block. The count is constant, so that the block's number determines their indexes.
const WITHDRAWALS: u64 = 2;

/// Code of the contracts: `STOP`.
const CONTRACT_CODE: Bytes = bytes!("00");

/// Base fee of a [root](ChainRules::root) block, in wei. The base fees of its descendants follow from EIP-1559.
const FIRST_BASE_FEE: u64 = 1_000_000_000;

/// Excess blob gas of a [root](ChainRules::root) block. It makes the blob price a few hundred wei instead of the
/// minimum of 1.
const FIRST_EXCESS_BLOB_GAS: u64 = 30_000_000;

// === impl ChainRules ===

impl ChainRules {
    /// Builds a block without a known parent, such as the genesis with number 0.
    ///
    /// Other numbers are for lies, which need blocks of a foreign chain at any height.
    pub(in crate::devchain) fn root(&self, number: u64) -> Block {
        let mut world = World::default();
        let ether = U256::from(10).pow(U256::from(18));
        let senders = self.cast.senders.iter().map(Account::address);
        for address in senders.chain(self.config.funded.iter().copied()) {
            world.credit(address, U256::from(1_000_000) * ether);
        }
        for contract in &self.cast.contracts {
            world.set_code(*contract, CONTRACT_CODE);
        }
        let header = Header {
            parent_hash: if number == 0 { B256::ZERO } else { digest(self.config.seed, "parent", number) },
            base_fee_per_gas: Some(FIRST_BASE_FEE),
            excess_blob_gas: Some(FIRST_EXCESS_BLOB_GAS),
            // The chain id is not part of a header. Without it in `extra_data`, chains that differ only in their id
            // would have the same genesis.
            extra_data: self.config.chain_id.to_be_bytes().into(),
            ..self.header(number)
        };
        self.seal(header, world, Vec::new(), Withdrawals::default())
    }

    /// Builds a block on `parent`. Two blocks with different `mark`s have different hashes, even with equal content.
    pub(in crate::devchain) fn child(&self, parent: &Block, transactions: Vec<Tx>, mark: Bytes) -> Block {
        let number = parent.header.number + 1;
        let prices = parent.next_prices();
        let header = Header {
            parent_hash: parent.header.hash(),
            base_fee_per_gas: Some(prices.gas),
            excess_blob_gas: parent.header.next_block_excess_blob_gas(BLOBS),
            extra_data: mark,
            ..self.header(number)
        };
        let mut world = parent.world.clone();
        let withdrawals = self.withdrawals(number);
        for withdrawal in &withdrawals {
            world.credit(withdrawal.address, withdrawal.amount_wei());
        }
        self.seal(header, world, transactions, Withdrawals::new(withdrawals))
    }

    /// Returns the fields that follow from the number alone.
    fn header(&self, number: u64) -> Header {
        let Config { seed, genesis_time, slot_seconds, gas_limit, .. } = self.config;
        Header {
            number,
            beneficiary: self.cast.proposers[(number % self.cast.proposers.len() as u64) as usize],
            timestamp: genesis_time.saturating_add(number.saturating_mul(slot_seconds)),
            gas_limit,
            mix_hash: digest(seed, "randao", number),
            parent_beacon_block_root: Some(digest(seed, "beacon", number)),
            requests_hash: Some(EMPTY_REQUESTS_HASH),
            ..Header::default()
        }
    }

    fn withdrawals(&self, number: u64) -> Vec<Withdrawal> {
        let mut dice = Dice::new(self.config.seed, "withdrawals", number);
        (0..WITHDRAWALS)
            .map(|i| Withdrawal {
                index: (number - 1) * WITHDRAWALS + i,
                validator_index: dice.below(1_000_000),
                address: *dice.pick(&self.cast.recipients),
                amount: 1 + dice.below(20_000_000),
            })
            .collect()
    }

    /// Executes the transactions, completes the header with the roots and sums of the results, and computes its hash.
    fn seal(&self, mut header: Header, mut world: World, txs: Vec<Tx>, withdrawals: Withdrawals) -> Block {
        let env = Env {
            chain_id: self.config.chain_id,
            number: header.number,
            base_fee: header.base_fee_per_gas.unwrap_or_default(),
            blob_fee: header.blob_fee(BLOBS).unwrap_or_default(),
            beneficiary: header.beneficiary,
        };
        let mut outcomes: Vec<TxOutcome> = Vec::with_capacity(txs.len());
        for tx in &txs {
            let outcome = execute(&mut world, &env, tx, header.gas_used);
            header.gas_used += outcome.gas_used;
            header.logs_bloom.accrue_bloom(outcome.receipt.logs_bloom());
            outcomes.push(outcome);
        }
        header.gas_limit = header.gas_limit.max(header.gas_used);
        header.blob_gas_used = Some(txs.iter().filter_map(|tx| tx.blob_gas_used()).sum());
        header.state_root = world.root();
        header.transactions_root = ordered_trie_root_with_encoder(&txs, |tx, out| tx.encode_2718(out));
        header.receipts_root =
            ordered_trie_root_with_encoder(&outcomes, |it, out| it.receipt.encode_2718(out));
        header.withdrawals_root = Some(calculate_withdrawals_root(&withdrawals));
        let rendered = Rendered::default();
        Block { header: header.seal_slow(), transactions: txs, outcomes, withdrawals, world, rendered }
    }
}

// === impl Block ===

impl Block {
    pub(in crate::devchain) fn hash(&self) -> B256 {
        self.header.hash()
    }

    pub(in crate::devchain) fn number(&self) -> u64 {
        self.header.number
    }

    /// Returns the base fee of this block.
    pub(in crate::devchain) fn base_fee(&self) -> u64 {
        self.header.base_fee_per_gas.unwrap_or_default()
    }

    /// Returns the blob base fee of this block.
    pub(in crate::devchain) fn blob_fee(&self) -> u128 {
        self.header.blob_fee(BLOBS).unwrap_or_default()
    }

    /// Returns the prices of the next block.
    pub(in crate::devchain) fn next_prices(&self) -> Prices {
        Prices {
            gas: self.header.next_block_base_fee(BaseFeeParams::ethereum()).unwrap_or_default(),
            blob_gas: self.header.next_block_blob_fee(BLOBS).unwrap_or_default(),
        }
    }
}

/// The block in the form of the network.
impl Block {
    /// The header as RLP.
    pub(in crate::devchain) fn header_rlp(&self) -> Vec<u8> {
        alloy_rlp::encode(self.header.inner())
    }

    /// The block as RLP.
    pub(in crate::devchain) fn rlp(&self) -> Vec<u8> {
        alloy_rlp::encode(alloy_consensus::Block::new(self.header.inner().clone(), self.body()))
    }

    /// The receipts, each in the form of EIP-2718.
    pub(in crate::devchain) fn encoded_receipts(&self) -> Vec<Vec<u8>> {
        self.outcomes.iter().map(|outcome| outcome.receipt.encoded_2718()).collect()
    }

    fn body(&self) -> BlockBody<TxEnvelope> {
        BlockBody {
            transactions: self.transactions.iter().map(|tx| tx.inner().clone()).collect(),
            ommers: Vec::new(),
            withdrawals: Some(self.withdrawals.clone()),
        }
    }
}

/// The block as JSON.
impl Block {
    /// The block with whole transactions.
    pub(in crate::devchain) fn full_json(&self) -> bytes::Bytes {
        self.full().text.clone()
    }

    /// The block with hashes in place of transactions.
    pub(in crate::devchain) fn hashes_json(&self) -> bytes::Bytes {
        let render = || self.around(self.transactions.iter().map(|tx| json(tx.tx_hash()))).text;
        self.rendered.hashes.get_or_init(render).clone()
    }

    /// The header alone, as a subscription announces it.
    pub(in crate::devchain) fn header_json(&self) -> String {
        json(&alloy_rpc_types_eth::Header::from_consensus(self.header.clone(), None, None))
    }

    /// All receipts.
    pub(in crate::devchain) fn receipts_json(&self) -> bytes::Bytes {
        self.receipts().text.clone()
    }

    /// All logs, in order.
    pub(in crate::devchain) fn logs(&self) -> Vec<Log> {
        let mut logs = Vec::new();
        for index in 0..self.outcomes.len() {
            let receipt = self.receipt(index, logs.len() as u64);
            logs.extend_from_slice(receipt.inner.logs());
        }
        logs
    }

    /// One transaction, a slice of the full block.
    pub(in crate::devchain) fn transaction_json(&self, index: usize) -> Option<bytes::Bytes> {
        self.full().item(index)
    }

    /// One receipt, a slice of all receipts.
    pub(in crate::devchain) fn receipt_json(&self, index: usize) -> Option<bytes::Bytes> {
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

    /// Renders the members of the block around a list of transactions.
    fn around(&self, transactions: impl Iterator<Item = String>) -> List {
        let size = alloy_consensus::Block::rlp_length_for(self.header.inner(), &self.body());
        let header =
            alloy_rpc_types_eth::Header::from_consensus(self.header.clone(), None, Some(U256::from(size)));
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
