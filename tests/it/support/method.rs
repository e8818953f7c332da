//! Names of the JSON-RPC methods that tests call: one constant, one method.

pub const BLOCK_BY_HASH: &str = "eth_getBlockByHash";
pub const BLOCK_BY_NUMBER: &str = "eth_getBlockByNumber";
pub const TRANSACTION_COUNT: &str = "eth_getBlockTransactionCountByNumber";
pub const TRANSACTION: &str = "eth_getTransactionByHash";
pub const TRANSACTION_AT_HASH: &str = "eth_getTransactionByBlockHashAndIndex";
pub const TRANSACTION_AT_NUMBER: &str = "eth_getTransactionByBlockNumberAndIndex";
pub const RECEIPT: &str = "eth_getTransactionReceipt";
pub const LOGS: &str = "eth_getLogs";
pub const RECEIPTS: &str = "eth_getBlockReceipts";
pub const BALANCE: &str = "eth_getBalance";
pub const CALL: &str = "eth_call";
pub const CHAIN_ID: &str = "eth_chainId";
pub const SEND: &str = "eth_sendRawTransaction";
pub const NEW_BLOCK_FILTER: &str = "eth_newBlockFilter";
pub const FILTER_CHANGES: &str = "eth_getFilterChanges";
pub const UNINSTALL_FILTER: &str = "eth_uninstallFilter";
