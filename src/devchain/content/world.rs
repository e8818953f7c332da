//! The state after a block: accounts with nonce, balance and code.

use alloy_primitives::{Address, B256, Bytes, KECCAK256_EMPTY, U256, keccak256};
use alloy_trie::{EMPTY_ROOT_HASH, TrieAccount, root::state_root};
use std::collections::BTreeMap;

/// The toy state. Its root is the true root of a state trie of these accounts.
///
/// The map is keyed by hashed address, which is the order of the trie, so that one pass computes the root. Each block
/// has its own copy, which stays small because generated transactions use a fixed set of accounts.
#[derive(Clone, Debug, Default)]
pub(in crate::devchain) struct World {
    accounts: BTreeMap<B256, Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    nonce: u64,
    balance: U256,
    code: Bytes,
    code_hash: B256,
}

// === impl World ===

impl World {
    pub(in crate::devchain) fn nonce(&self, address: Address) -> u64 {
        self.entry(address).map_or(0, |entry| entry.nonce)
    }

    pub(in crate::devchain) fn balance(&self, address: Address) -> U256 {
        self.entry(address).map_or(U256::ZERO, |entry| entry.balance)
    }

    pub(in crate::devchain) fn code(&self, address: Address) -> Bytes {
        self.entry(address).map_or_else(Bytes::new, |entry| entry.code.clone())
    }

    pub(in crate::devchain) fn has_code(&self, address: Address) -> bool {
        self.entry(address).is_some_and(|entry| !entry.code.is_empty())
    }

    /// Adds to a balance. An amount of zero creates no empty account (EIP-161).
    pub(in crate::devchain) fn credit(&mut self, address: Address, amount: U256) {
        if !amount.is_zero() {
            let entry = self.entry_mut(address);
            entry.balance = entry.balance.saturating_add(amount);
        }
    }

    /// Subtracts from a balance, but not below zero, because the chain refuses no transaction for its cost.
    pub(in crate::devchain) fn debit(&mut self, address: Address, amount: U256) {
        let entry = self.entry_mut(address);
        entry.balance = entry.balance.saturating_sub(amount);
    }

    /// Records that `address` has used `nonce`. A transaction moved to another branch may use an old nonce
    /// or skip some; the nonce of the account never decreases.
    pub(in crate::devchain) fn use_nonce(&mut self, address: Address, nonce: u64) {
        let entry = self.entry_mut(address);
        entry.nonce = entry.nonce.max(nonce.saturating_add(1));
    }

    pub(in crate::devchain) fn set_code(&mut self, address: Address, code: Bytes) {
        let entry = self.entry_mut(address);
        entry.code_hash = keccak256(&code);
        entry.code = code;
    }

    /// Computes the state root.
    pub(in crate::devchain) fn root(&self) -> B256 {
        state_root(self.accounts.iter().map(|(hashed, entry)| {
            (*hashed, TrieAccount::new(entry.nonce, entry.balance, EMPTY_ROOT_HASH, entry.code_hash))
        }))
    }

    fn entry(&self, address: Address) -> Option<&Entry> {
        self.accounts.get(&keccak256(address))
    }

    fn entry_mut(&mut self, address: Address) -> &mut Entry {
        self.accounts.entry(keccak256(address)).or_default()
    }
}

// === impl Entry ===

impl Default for Entry {
    fn default() -> Self {
        Self { nonce: 0, balance: U256::ZERO, code: Bytes::new(), code_hash: KECCAK256_EMPTY }
    }
}
