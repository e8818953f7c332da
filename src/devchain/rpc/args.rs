//! Arguments of a call, read as strictly as geth reads them.

use crate::devchain::chain::{error::RpcError, visibility::BlockId};
use alloy_primitives::{Address, B256, Bytes};
use alloy_rpc_types_eth::Filter;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The positional arguments of a call.
#[derive(Clone, Debug)]
pub(in crate::devchain) struct Args<'a> {
    list: Vec<&'a RawValue>,
}

/// `{"blockHash": …}` or `{"blockNumber": …}` (EIP-1898).
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BlockObject<'a> {
    #[serde(borrow)]
    block_hash: Option<&'a RawValue>,
    #[serde(borrow)]
    block_number: Option<&'a RawValue>,
    #[serde(default)]
    require_canonical: bool,
}

/// The length of a hash as text, with its `0x`.
const HASH_TEXT: usize = 66;

// === impl Args ===

impl<'a> Args<'a> {
    /// Splits the arguments. If the arguments are missing or `null`, the list is empty.
    pub(in crate::devchain) fn parse(params: Option<&'a RawValue>) -> Result<Self, RpcError> {
        let list = match params {
            None => Vec::new(),
            Some(raw) => serde_json::from_str::<Option<Vec<&'a RawValue>>>(raw.get())
                .map_err(|_| RpcError::invalid_params("non-array args"))?
                .unwrap_or_default(),
        };
        Ok(Self { list })
    }

    /// Refuses arguments after the first `most`.
    pub(super) fn at_most(&self, most: usize) -> Result<&Self, RpcError> {
        if self.list.len() > most {
            return Err(RpcError::invalid_params(format!("too many arguments, want at most {most}")));
        }
        Ok(self)
    }

    /// Refuses all arguments.
    pub(super) fn none(&self) -> Result<(), RpcError> {
        self.at_most(0).map(drop)
    }

    pub(super) fn hash(&self, at: usize) -> Result<B256, RpcError> {
        self.text(at)?.parse().map_err(|error| invalid(at, error))
    }

    pub(super) fn address(&self, at: usize) -> Result<Address, RpcError> {
        self.text(at)?.parse().map_err(|error| invalid(at, error))
    }

    pub(super) fn bytes(&self, at: usize) -> Result<Bytes, RpcError> {
        let text = self.text(at)?;
        if !text.starts_with("0x") {
            return Err(invalid(at, "hex string without 0x prefix"));
        }
        text.parse().map_err(|error| invalid(at, error))
    }

    pub(in crate::devchain) fn flag(&self, at: usize) -> Result<bool, RpcError> {
        serde_json::from_str(self.required(at)?.get()).map_err(|error| invalid(at, error))
    }

    pub(super) fn quantity(&self, at: usize) -> Result<u64, RpcError> {
        parse_quantity(&self.text(at)?).map_err(|error| invalid(at, error))
    }

    /// Returns the number of a filter's id. A malformed id becomes 0, which no filter has.
    pub(super) fn filter(&self, at: usize) -> Result<u64, RpcError> {
        Ok(parse_quantity(&self.text(at)?).unwrap_or(0))
    }

    /// Returns the filter of logs in an object.
    pub(in crate::devchain) fn log_filter(&self, at: usize) -> Result<Filter, RpcError> {
        serde_json::from_str(self.required(at)?.get()).map_err(|error| invalid(at, error))
    }

    /// Returns an optional list of percentiles, each between 0 and 100.
    pub(super) fn percentiles(&self, at: usize) -> Result<Option<Vec<f64>>, RpcError> {
        let Some(raw) = self.optional(at) else {
            return Ok(None);
        };
        let list: Vec<f64> = serde_json::from_str(raw.get()).map_err(|error| invalid(at, error))?;
        if list.iter().any(|value| !(0.0..=100.0).contains(value)) {
            return Err(RpcError::server("invalid reward percentile"));
        }
        Ok(Some(list))
    }

    /// Returns the block id in an argument that must be a hash.
    pub(super) fn hash_id(&self, at: usize) -> Result<BlockId, RpcError> {
        Ok(BlockId::Hash { hash: self.hash(at)?, canonical_only: false })
    }

    /// Returns the block id in an argument that must be a number or a tag.
    pub(super) fn number_id(&self, at: usize) -> Result<BlockId, RpcError> {
        parse_number_or_tag(&self.text(at)?).map_err(|error| invalid(at, error))
    }

    /// Returns the block id in an argument that may be a number, a tag, a hash or an object (EIP-1898).
    pub(super) fn block_id(&self, at: usize) -> Result<BlockId, RpcError> {
        let raw = self.required(at)?;
        let Ok(object) = serde_json::from_str::<BlockObject<'_>>(raw.get()) else {
            let text = self.text(at)?;
            return if text.len() == HASH_TEXT { self.hash_id(at) } else { self.number_id(at) };
        };
        match (object.block_hash, object.block_number) {
            (Some(hash), None) => {
                let hash = serde_json::from_str(hash.get()).map_err(|error| invalid(at, error))?;
                Ok(BlockId::Hash { hash, canonical_only: object.require_canonical })
            }
            (None, Some(number)) => Args { list: vec![number] }.number_id(0),
            (Some(_), Some(_)) => {
                Err(invalid(at, "cannot specify both BlockHash and BlockNumber, choose one or the other"))
            }
            (None, None) => Err(invalid(at, "blockHash or blockNumber is required")),
        }
    }

    /// Returns the same as [`block_id`](Self::block_id), or the latest block if the argument is missing.
    pub(super) fn block_id_or_latest(&self, at: usize) -> Result<BlockId, RpcError> {
        if self.optional(at).is_some() { self.block_id(at) } else { Ok(BlockId::Latest) }
    }

    /// Returns a required argument of any type.
    pub(super) fn required(&self, at: usize) -> Result<&'a RawValue, RpcError> {
        let missing = || RpcError::invalid_params(format!("missing value for required argument {at}"));
        self.optional(at).ok_or_else(missing)
    }

    fn optional(&self, at: usize) -> Option<&'a RawValue> {
        self.list.get(at).copied().filter(|raw| raw.get() != "null")
    }

    fn text(&self, at: usize) -> Result<String, RpcError> {
        serde_json::from_str(self.required(at)?.get()).map_err(|error| invalid(at, error))
    }
}

fn invalid(at: usize, reason: impl std::fmt::Display) -> RpcError {
    RpcError::invalid_params(format!("invalid argument {at}: {reason}"))
}

fn parse_number_or_tag(text: &str) -> Result<BlockId, &'static str> {
    Ok(match text {
        "latest" => BlockId::Latest,
        "safe" => BlockId::Safe,
        "finalized" => BlockId::Finalized,
        "earliest" => BlockId::Earliest,
        "pending" => BlockId::Pending,
        _ => match parse_quantity(text)? {
            number if number > i64::MAX as u64 => return Err("block number larger than int64"),
            number => BlockId::Number(number),
        },
    })
}

fn parse_quantity(text: &str) -> Result<u64, &'static str> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let digits = digits.ok_or("hex string without 0x prefix")?;
    match digits.as_bytes() {
        [] => Err("hex string \"0x\""),
        [b'0', _, ..] => Err("hex number with leading zero digits"),
        // `from_str_radix` would accept a sign.
        [b'+' | b'-', ..] => Err("invalid hex string"),
        bytes if bytes.len() > 16 => Err("hex number > 64 bits"),
        _ => u64::from_str_radix(digits, 16).map_err(|_| "invalid hex string"),
    }
}
