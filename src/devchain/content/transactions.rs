//! Signed transactions of every type.

use super::{
    accounts::Cast,
    dice::Dice,
    draft::{Draft, Prices, sign},
    world::World,
};
use crate::devchain::config::Config;
use alloy_consensus::{Transaction as _, TxEip1559, TxEip4844Variant, TxEnvelope, transaction::Recovered};
use alloy_eips::{
    eip2930::{AccessList, AccessListItem},
    eip4844::VERSIONED_HASH_VERSION_KZG,
    eip7702::{Authorization, SignedAuthorization},
    eip7840::BlobParams,
};
use alloy_primitives::{Address, B256, Bytes, TxKind, U256, bytes};
use std::{collections::HashMap, sync::Arc};
use strum::VariantArray;

/// A signed transaction and its sender, shared between the branches that include it.
pub(in crate::devchain) type Tx = Arc<Recovered<TxEnvelope>>;

/// The kinds of generated transactions, in the order of generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::VariantArray)]
pub enum TransactionKind {
    /// Type 0 with a chain id in its signature (EIP-155).
    Legacy,
    /// Type 2, with a fee cap and a tip (EIP-1559).
    DynamicFee,
    /// Type 1, with an access list (EIP-2930).
    AccessList,
    /// Type 3, with versioned hashes of blobs and, as in every block, without the blobs (EIP-4844).
    Blob,
    /// Type 4, with signed authorizations (EIP-7702).
    SetCode,
    /// Type 2 without recipient: creates a contract.
    Create,
    /// Type 0 as signed before EIP-155, without a chain id, so it is valid on every chain.
    Unprotected,
}

/// Hands out nonces, starting with the next nonces of a state.
#[derive(Debug)]
pub(in crate::devchain) struct Nonces<'a> {
    world: &'a World,
    next: HashMap<Address, u64>,
}

/// Generates transactions. Each differs from all earlier ones.
#[derive(Clone, Debug)]
pub(in crate::devchain) struct Forge {
    chain_id: u64,
    seed: u64,
    cast: Arc<Cast>,
    made: u64,
}

/// The blob parameters of Osaka, the first fork with a floor for the price of blob gas (EIP-7918).
pub(in crate::devchain) const BLOBS: BlobParams = BlobParams::osaka();

/// Maximum number of blobs of a generated transaction.
const MAX_BLOBS: u64 = 3;

/// Price above which no blob transactions are generated. Without a limit, they would raise the price for ever.
const BLOB_PRICE_CEILING: u128 = 1_000_000_000;

/// Init code `CALLER SELFDESTRUCT`. A contract created and destroyed in one transaction leaves no account (EIP-6780),
/// which keeps the toy state small.
const INIT_CODE: Bytes = bytes!("33ff");

// === impl Nonces ===

impl<'a> Nonces<'a> {
    /// Returns the nonces that follow `world` and the transactions `before`.
    pub(in crate::devchain) fn after<'t>(world: &'a World, before: impl IntoIterator<Item = &'t Tx>) -> Self {
        let mut nonces = Self { world, next: HashMap::new() };
        for tx in before {
            let next = nonces.next_mut(tx.signer());
            *next = (*next).max(tx.nonce().saturating_add(1));
        }
        nonces
    }

    fn take(&mut self, address: Address) -> u64 {
        let next = self.next_mut(address);
        let nonce = *next;
        *next = nonce.saturating_add(1);
        nonce
    }

    fn next_mut(&mut self, address: Address) -> &mut u64 {
        self.next.entry(address).or_insert_with(|| self.world.nonce(address))
    }
}

// === impl Forge ===

impl Forge {
    pub(in crate::devchain) fn new(config: &Config, cast: Arc<Cast>) -> Self {
        Self { chain_id: config.chain_id, seed: config.seed, cast, made: 0 }
    }

    /// Makes `count` transactions that fit into one block after the transactions `before`.
    pub(in crate::devchain) fn make_many(
        &mut self,
        world: &World,
        before: &[Tx],
        prices: Prices,
        count: usize,
    ) -> Vec<Tx> {
        let mut nonces = Nonces::after(world, before);
        let mut blobs: u64 = before.iter().filter_map(|tx| tx.blob_count()).sum();
        (0..count)
            .map(|_| {
                let mut kind =
                    TransactionKind::VARIANTS[(self.made % TransactionKind::VARIANTS.len() as u64) as usize];
                let room = BLOBS.max_blob_count.saturating_sub(blobs);
                if kind == TransactionKind::Blob && (room < MAX_BLOBS || prices.blob_gas > BLOB_PRICE_CEILING)
                {
                    kind = TransactionKind::DynamicFee;
                }
                let tx = self.make(kind, &mut nonces, prices);
                blobs += tx.blob_count().unwrap_or(0);
                tx
            })
            .collect()
    }

    /// Makes one transaction of a kind.
    pub(in crate::devchain) fn make(
        &mut self,
        kind: TransactionKind,
        nonces: &mut Nonces<'_>,
        prices: Prices,
    ) -> Tx {
        let cast = Arc::clone(&self.cast);
        let sender = &cast.senders[(self.made % cast.senders.len() as u64) as usize];
        let mut dice = Dice::new(self.seed, "transaction", self.made);
        self.made += 1;

        let draft = Draft::throw(&mut dice, &cast, prices, nonces.take(sender.address()));
        let envelope: TxEnvelope = match kind {
            TransactionKind::Legacy => sign(draft.legacy(Some(self.chain_id)), sender).into(),
            TransactionKind::Unprotected => sign(draft.legacy(None), sender).into(),
            TransactionKind::AccessList => {
                let list = access_list(&mut dice, &cast);
                sign(draft.access_list(self.chain_id, list), sender).into()
            }
            TransactionKind::DynamicFee => {
                let list = if dice.one_in(3) { access_list(&mut dice, &cast) } else { AccessList::default() };
                sign(draft.dynamic_fee(self.chain_id, list), sender).into()
            }
            TransactionKind::Create => {
                let call = draft.dynamic_fee(self.chain_id, AccessList::default());
                let create = TxEip1559 { to: TxKind::Create, value: U256::ZERO, input: INIT_CODE, ..call };
                sign(create, sender).into()
            }
            TransactionKind::Blob => {
                let blob = draft.blob(self.chain_id, blob_hashes(&mut dice), prices);
                TxEnvelope::Eip4844(sign(TxEip4844Variant::TxEip4844(blob), sender))
            }
            TransactionKind::SetCode => {
                let authorizations = self.authorizations(&mut dice, nonces);
                sign(draft.set_code(self.chain_id, authorizations), sender).into()
            }
        };
        Arc::new(Recovered::new_unchecked(envelope, sender.address()))
    }

    fn authorizations(&self, dice: &mut Dice, nonces: &mut Nonces<'_>) -> Vec<SignedAuthorization> {
        (0..=dice.below(2))
            .map(|_| {
                let authority = dice.pick(&self.cast.authorities);
                let authorization = Authorization {
                    chain_id: U256::from(self.chain_id),
                    address: *dice.pick(&self.cast.contracts),
                    nonce: nonces.take(authority.address()),
                };
                let signature = authority.sign(authorization.signature_hash());
                authorization.into_signed(signature)
            })
            .collect()
    }
}

/// Returns random versioned hashes. Only their version byte can be checked without blobs.
fn blob_hashes(dice: &mut Dice) -> Vec<B256> {
    (0..=dice.below(MAX_BLOBS))
        .map(|_| {
            let mut hash = dice.word();
            hash[0] = VERSIONED_HASH_VERSION_KZG;
            hash
        })
        .collect()
}

fn access_list(dice: &mut Dice, cast: &Cast) -> AccessList {
    let items = (0..=dice.below(2)).map(|_| AccessListItem {
        address: *dice.pick(&cast.contracts),
        storage_keys: (0..dice.below(3)).map(|_| dice.word()).collect(),
    });
    AccessList(items.collect())
}
