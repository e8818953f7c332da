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

/// All accounts that appear on a chain.
#[derive(Clone, Debug)]
pub(in crate::devchain) struct Cast {
    /// Signers of the generated transactions.
    pub(in crate::devchain) senders: Vec<Account>,
    /// Signers of authorizations (EIP-7702) only, so that an authorization never changes a sender's nonce.
    pub(in crate::devchain) authorities: Vec<Account>,
    /// Accounts with code. A call to such an account can emit logs, and sometimes fails.
    pub(in crate::devchain) contracts: Vec<Address>,
    /// Accounts without code. A call to such an account always succeeds and emits no logs.
    pub(in crate::devchain) recipients: Vec<Address>,
    /// Proposers of blocks, in turn.
    pub(in crate::devchain) proposers: Vec<Address>,
}

// === impl Account ===

impl Account {
    /// Returns the account of a secret key, or `None` if `secret` is not a valid key of secp256k1.
    pub fn from_secret(secret: B256) -> Option<Self> {
        // Derives the address by signing any message and recovering the signer.
        let message = B256::ZERO;
        let signature = sign_message(secret, message).ok()?;
        let address = recover_signer(&signature, message).ok()?;
        Some(Self { secret, address })
    }

    /// Returns the address.
    pub const fn address(&self) -> Address {
        self.address
    }

    /// Returns the secret key, for wallets that send from this account.
    pub const fn secret(&self) -> B256 {
        self.secret
    }

    /// Signs a hash deterministically (RFC 6979), with a low `s`.
    pub fn sign(&self, hash: B256) -> Signature {
        sign_message(self.secret, hash).expect("the key has signed before, when its address was derived")
    }

    fn derive(seed: u64, role: &str, n: u64) -> Self {
        Self::from_secret(digest(seed, role, n)).expect("all but one in 2^127 digests are keys")
    }
}

/// Omits the secret, so that a failed assertion does not print it.
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
            // Coprime to the number of kinds of transactions, so that every sender sends every kind.
            senders: accounts("sender", 11),
            authorities: accounts("authority", 3),
            contracts: addresses("contract", 6),
            recipients: addresses("recipient", 6),
            proposers: addresses("proposer", 4),
        }
    }
}
