//! Metric labels for method names. Only a fixed list of names becomes a label, never text from a request.

use super::Query;

/// Methods that clients call often enough to deserve a label of their own.
const COMMON: [&str; 16] = [
    "eth_blockNumber",
    "eth_call",
    "eth_chainId",
    "eth_estimateGas",
    "eth_feeHistory",
    "eth_gasPrice",
    "eth_getBalance",
    "eth_getBlockReceipts",
    "eth_getCode",
    "eth_getLogs",
    "eth_getStorageAt",
    "eth_getTransactionCount",
    "eth_maxPriorityFeePerGas",
    "eth_sendRawTransaction",
    "net_version",
    "web3_clientVersion",
];

const OTHER: &str = "other";

/// Index of a method's label in [`MethodLabel::all`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodLabel(usize);

// === impl MethodLabel ===

impl MethodLabel {
    /// Returns every label, in index order.
    pub fn all() -> impl Iterator<Item = &'static str> {
        Query::METHODS.iter().chain(&COMMON).copied().chain([OTHER])
    }

    /// Returns the label of `method`; `other` if the method is not in the list.
    pub fn of(method: &str) -> Self {
        let position = |labels: &[&str]| labels.iter().position(|label| *label == method);
        let common = || Query::METHODS.len() + position(&COMMON).unwrap_or(COMMON.len());
        Self(position(Query::METHODS).unwrap_or_else(common))
    }

    /// Returns the index of the label.
    pub fn index(self) -> usize {
        self.0
    }

    /// Returns the text of the label.
    pub fn as_str(self) -> &'static str {
        Self::all().nth(self.0).unwrap_or(OTHER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_a_request_never_becomes_a_label() {
        for method in MethodLabel::all() {
            assert_eq!(MethodLabel::of(method).as_str(), method);
        }
        assert_eq!(MethodLabel::of("eth_evil\",x=\"").as_str(), "other");
    }
}
