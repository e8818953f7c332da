//! Keys and addresses, all derived from the seed.

use super::dice::digest;
use alloy_consensus::crypto::secp256k1::{recover_signer, sign_message};
use alloy_primitives::{Address, B256, Signature};
use std::fmt;

/// A key and its address.
#[derive(Clone, PartialEq, Eq)]
pub struct Account {
    secret: B256,
    address: Address,
}

/// Everybody who appears on a chain.
#[derive(Clone, Debug)]
pub(in crate::devchain) struct Cast {
    /// They sign the generated transactions.
    pub(in crate::devchain) senders: Vec<Account>,
    /// They sign authorizations (EIP-7702) and nothing else, so that no sender's nonce moves unseen.
    pub(in crate::devchain) authorities: Vec<Account>,
    /// Accounts with code: calling one emits logs, and sometimes fails.
    pub(in crate::devchain) contracts: Vec<Address>,
    /// Accounts without code: sending to one always succeeds and emits nothing.
    pub(in crate::devchain) recipients: Vec<Address>,
    /// They take turns at proposing blocks.
    pub(in crate::devchain) proposers: Vec<Address>,
}

// === impl Account ===

impl Account {
    /// The account of a secret key, or `None` if the number is no key of secp256k1.
    pub fn from_secret(secret: B256) -> Option<Self> {
        // The address is what recovering any signature of the key gives.
        let message = B256::ZERO;
        let signature = sign_message(secret, message).ok()?;
        let address = recover_signer(&signature, message).ok()?;
        Some(Self { secret, address })
    }

    /// The address.
    pub const fn address(&self) -> Address {
        self.address
    }

    /// The secret key, for wallets that want to send from this account.
    pub const fn secret(&self) -> B256 {
        self.secret
    }

    /// Signs a hash: deterministic (RFC 6979), with a low `s`.
    pub fn sign(&self, hash: B256) -> Signature {
        sign_message(self.secret, hash).expect("the key has signed before, when its address was derived")
    }

    fn derive(seed: u64, role: &str, n: u64) -> Self {
        Self::from_secret(digest(seed, role, n)).expect("all but one in 2^127 digests are keys")
    }
}

/// Without the secret, so that a failed assertion does not print it.
impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Account").field(&self.address).finish()
    }
}

// === impl Cast ===

impl Cast {
    pub(in crate::devchain) fn new(seed: u64) -> Self {
        let accounts = |role: &str, n| (0..n).map(|i| Account::derive(seed, role, i)).collect();
        let addresses = |role: &str, n| (0..n).map(|i| Address::from_word(digest(seed, role, i))).collect();
        Self {
            // More than there are kinds of transactions and prime to their number, so that every sender
            // gets to send every kind.
            senders: accounts("sender", 11),
            authorities: accounts("authority", 3),
            contracts: addresses("contract", 6),
            recipients: addresses("recipient", 6),
            proposers: addresses("proposer", 4),
        }
    }
}
