//! A small hand-built block of each fork with its receipts, in the JSON of nodes.

use alloy_consensus::{
    BlockBody, Eip658Value, Header, Receipt, ReceiptEnvelope, Transaction as _, TxEnvelope,
    crypto::secp256k1::recover_signer_unchecked,
    proofs::{
        calculate_ommers_root, calculate_receipt_root, calculate_transaction_root, calculate_withdrawals_root,
    },
    transaction::{Recovered, TransactionInfo},
};
use alloy_eips::{
    Encodable2718,
    eip4895::{Withdrawal, Withdrawals},
    eip7685::EMPTY_REQUESTS_HASH,
    eip7840::BlobParams,
};
use alloy_primitives::{Address, B64, Bloom, Log, LogData, Sealable, Sealed, U256, keccak256};
use alloy_rpc_types_eth::{Block, BlockTransactions, Log as RpcLog, Transaction, TransactionReceipt};

use super::offers::{self, Offer};

/// A block and its receipts, as JSON.
pub struct Vector {
    pub name: &'static str,
    pub block: String,
    pub receipts: String,
    /// Headers of the uncles, as JSON.
    pub uncles: Vec<String>,
    /// The block as RLP.
    pub rlp: Vec<u8>,
    /// The receipts, each in the form of EIP-2718.
    pub encoded_receipts: Vec<Vec<u8>>,
}

/// Forks that changed the format of blocks, oldest first, each with its changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fork {
    /// Receipts with the state root, signatures without chain id and with any `s`.
    Frontier,
    /// Receipts with a status.
    Byzantium,
    /// Access lists.
    Berlin,
    /// A base fee.
    London,
    /// Withdrawals.
    Shanghai,
    /// Blobs.
    Cancun,
    /// EIP-7702 delegations and a requests hash.
    Prague,
    /// A hash of the block's access list, and a slot number.
    Amsterdam,
}

impl Fork {
    pub const ALL: [Self; 8] = [
        Self::Frontier,
        Self::Byzantium,
        Self::Berlin,
        Self::London,
        Self::Shanghai,
        Self::Cancun,
        Self::Prague,
        Self::Amsterdam,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Frontier => "Frontier",
            Self::Byzantium => "Byzantium",
            Self::Berlin => "Berlin",
            Self::London => "London",
            Self::Shanghai => "Shanghai",
            Self::Cancun => "Cancun",
            Self::Prague => "Prague",
            Self::Amsterdam => "Amsterdam",
        }
    }

    fn blobs(self) -> BlobParams {
        if self < Self::Prague { BlobParams::cancun() } else { BlobParams::bpo2() }
    }
}

/// Returns the blocks of all forks.
pub fn all() -> Vec<Vector> {
    Fork::ALL.into_iter().map(vector).collect()
}

/// Returns a block with transactions of every type that the fork has.
pub fn vector(fork: Fork) -> Vector {
    let uncle = Header { number: 6, extra_data: vec![7].into(), ..Header::default() };
    let offers = offers::of(fork);
    let outcomes: Vec<_> =
        offers.iter().enumerate().map(|(index, offer)| outcome(fork, index, offer)).collect();
    let transactions: Vec<_> = offers.into_iter().map(|offer| offer.signed).collect();
    let withdrawals = (fork >= Fork::Shanghai).then(withdrawals);

    let mut header = header(fork);
    header.transactions_root = calculate_transaction_root(&transactions);
    header.receipts_root = calculate_receipt_root(&outcomes);
    header.logs_bloom = outcomes.iter().fold(Bloom::ZERO, |bloom, outcome| bloom | *outcome.logs_bloom());
    header.gas_used = outcomes.last().map_or(0, ReceiptEnvelope::cumulative_gas_used);
    header.withdrawals_root = withdrawals.as_deref().map(|list| calculate_withdrawals_root(list));
    header.blob_gas_used =
        header.excess_blob_gas.map(|_| transactions.iter().filter_map(|tx| tx.blob_gas_used()).sum());
    let uncles = if fork < Fork::London { vec![uncle] } else { Vec::new() };
    header.ommers_hash = calculate_ommers_root(&uncles);

    let body = BlockBody {
        transactions: transactions.clone(),
        ommers: uncles.clone(),
        withdrawals: withdrawals.clone(),
    };
    let rlp = alloy_rlp::encode(alloy_consensus::Block::new(header.clone(), body));
    let encoded_receipts = outcomes.iter().map(Encodable2718::encoded_2718).collect();
    let header = header.seal_slow();
    let senders: Vec<_> = transactions.iter().map(sender).collect();
    let receipts = receipts(fork, &header, &transactions, &senders, &outcomes);
    let block = Block {
        transactions: BlockTransactions::Full(
            transactions
                .into_iter()
                .zip(senders)
                .enumerate()
                .map(|(index, (tx, sender))| {
                    let info = TransactionInfo {
                        hash: Some(*tx.tx_hash()),
                        index: Some(index as u64),
                        block_hash: Some(header.hash()),
                        block_number: Some(header.number),
                        base_fee: header.base_fee_per_gas,
                        // Not all nodes return `blockTimestamp`.
                        block_timestamp: (fork >= Fork::Cancun).then_some(header.timestamp),
                    };
                    Transaction::from_transaction(Recovered::new_unchecked(tx, sender), info)
                })
                .collect(),
        ),
        header: alloy_rpc_types_eth::Header::from_consensus(
            header,
            (fork < Fork::Cancun).then(|| U256::from(9_u64 << 40)),
            Some(U256::from(600)),
        ),
        uncles: uncles.iter().map(Header::hash_slow).collect(),
        withdrawals,
    };
    let json_header = |uncle: Header| {
        json(&alloy_rpc_types_eth::Header::from_consensus(uncle.seal_slow(), Some(U256::ZERO), None))
    };
    Vector {
        name: fork.name(),
        block: json(&block),
        receipts: json(&receipts),
        uncles: uncles.into_iter().map(json_header).collect(),
        rlp,
        encoded_receipts,
    }
}

/// Returns a header with the members that do not depend on the content.
fn header(fork: Fork) -> Header {
    let old = fork < Fork::Shanghai;
    Header {
        parent_hash: keccak256("parent"),
        beneficiary: Address::repeat_byte(0xbe),
        state_root: keccak256("state"),
        difficulty: if old { U256::from(0x3_0000_0000_u64) } else { U256::ZERO },
        number: 7,
        gas_limit: 30_000_000,
        timestamp: 1_438_269_988,
        extra_data: b"vector".into(),
        mix_hash: keccak256("mix"),
        nonce: if old { B64::repeat_byte(0x17) } else { B64::ZERO },
        base_fee_per_gas: (fork >= Fork::London).then_some(offers::BASE_FEE),
        excess_blob_gas: (fork >= Fork::Cancun).then_some(50_000_000),
        parent_beacon_block_root: (fork >= Fork::Cancun).then(|| keccak256("beacon")),
        requests_hash: (fork >= Fork::Prague).then_some(EMPTY_REQUESTS_HASH),
        block_access_list_hash: (fork >= Fork::Amsterdam).then(|| keccak256("accesses")),
        slot_number: (fork >= Fork::Amsterdam).then_some(11_000_000),
        ..Header::default()
    }
}

fn withdrawals() -> Withdrawals {
    let withdrawal = |index| Withdrawal {
        index,
        validator_index: 70_000 + index,
        address: Address::repeat_byte(0xaa),
        amount: 1_000_000 + index,
    };
    Withdrawals::new(vec![withdrawal(500), withdrawal(501)])
}

/// Returns the receipt of the transaction at `index`. Failing transactions have no logs, the others up to three.
fn outcome(fork: Fork, index: usize, offer: &Offer) -> ReceiptEnvelope {
    let log = |n: usize| Log {
        address: offer.signed.to().unwrap_or(Address::repeat_byte(0xcc)),
        data: LogData::new_unchecked(
            (0..n).map(|topic| keccak256([index as u8, topic as u8])).collect(),
            vec![n as u8; 20 * n].into(),
        ),
    };
    let status = if fork < Fork::Byzantium {
        Eip658Value::PostState(keccak256([index as u8]))
    } else {
        Eip658Value::Eip658(!offer.fails)
    };
    let logs = if offer.fails { Vec::new() } else { (0..index % 4).map(log).collect() };
    let receipt = Receipt { status, cumulative_gas_used: 30_000 * (index as u64 + 1), logs };
    ReceiptEnvelope::from_typed(offer.signed.tx_type(), receipt.with_bloom())
}

fn receipts(
    fork: Fork,
    header: &Sealed<Header>,
    transactions: &[TxEnvelope],
    senders: &[Address],
    outcomes: &[ReceiptEnvelope],
) -> Vec<TransactionReceipt> {
    let mut logs = 0;
    let mut gas = 0;
    let receipt = |(index, outcome): (usize, &ReceiptEnvelope)| {
        let (tx, from) = (&transactions[index], senders[index]);
        let inner = outcome.clone().map_logs(|inner| {
            logs += 1;
            RpcLog {
                inner,
                block_hash: Some(header.hash()),
                block_number: Some(header.number),
                block_timestamp: (fork >= Fork::Cancun).then_some(header.timestamp),
                transaction_hash: Some(*tx.tx_hash()),
                transaction_index: Some(index as u64),
                log_index: Some(logs - 1),
                removed: false,
            }
        });
        let used = outcome.cumulative_gas_used() - std::mem::replace(&mut gas, outcome.cumulative_gas_used());
        TransactionReceipt {
            inner,
            transaction_hash: *tx.tx_hash(),
            transaction_index: Some(index as u64),
            block_hash: Some(header.hash()),
            block_number: Some(header.number),
            gas_used: used,
            effective_gas_price: tx.effective_gas_price(header.base_fee_per_gas),
            blob_gas_used: tx.blob_gas_used(),
            blob_gas_price: tx.blob_gas_used().and_then(|_| header.blob_fee(fork.blobs())),
            from,
            to: tx.to(),
            contract_address: tx.is_create().then(|| from.create(tx.nonce())),
        }
    };
    outcomes.iter().enumerate().map(receipt).collect()
}

fn sender(tx: &TxEnvelope) -> Address {
    recover_signer_unchecked(tx.signature(), tx.signature_hash()).unwrap()
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap()
}
