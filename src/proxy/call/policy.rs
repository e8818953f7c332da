//! Decides which methods a client may call.

use std::sync::Arc;

use http::HeaderValue;

use crate::{
    eth::{Query, is_development_method},
    proxy::{
        config::Config,
        error::{CallError, MethodRule},
        glob::{Glob, any, globs},
    },
};

/// Methods that any web page may call. All other methods need a trusted origin, even if the operator allows them,
/// because a node with unlocked accounts signs for every caller. This is a list of harmless methods, because a list of
/// dangerous methods is never complete: nodes keep adding methods that sign (`eth_sendTransactionSync`,
/// `eth_sendUnsignedTransaction`).
const OPEN_TO_PAGES: [&str; 20] = [
    "eth_blockNumber",
    "eth_chainId",
    "eth_call",
    "eth_estimateGas",
    "eth_createAccessList",
    "eth_simulateV1",
    "eth_feeHistory",
    "eth_gasPrice",
    "eth_maxPriorityFeePerGas",
    "eth_blobBaseFee",
    "eth_syncing",
    "eth_get*",
    "eth_new*Filter",
    "eth_uninstallFilter",
    "eth_subscribe",
    "eth_unsubscribe",
    "debug_getRaw*",
    "net_*",
    "web3_*",
    // The client has signed the transaction of these methods; the node only broadcasts it.
    "eth_sendRawTransaction*",
];

/// Number of characters of a method name that a refusal echoes.
const SHOWN_METHOD: usize = 64;

/// Methods that a client may call. The policy comes with each [caller](crate::proxy::Caller), so that each client can
/// have its own policy, and a reload can replace all policies.
#[derive(Clone, Debug)]
pub struct Policy {
    all: Arc<ForAll>,
    /// If set, restricts the client to these methods.
    allow: Option<Vec<Glob>>,
    deny: Vec<Glob>,
}

/// Rules for all clients.
#[derive(Debug)]
struct ForAll {
    strict: bool,
    allow: Vec<Glob>,
    deny: Vec<Glob>,
    open_to_pages: Vec<Glob>,
    trusted_origins: Vec<String>,
}

// === impl Policy ===

impl Policy {
    /// Builds the policy from `config`. Drops invalid globs, which [`check`](crate::proxy::MethodsConfig::check)
    /// reports.
    pub fn new(config: &Config) -> Self {
        let all = ForAll {
            strict: config.strict,
            allow: globs(&config.methods.allow),
            deny: globs(&config.methods.deny),
            open_to_pages: OPEN_TO_PAGES.iter().filter_map(|glob| Glob::try_new(glob).ok()).collect(),
            trusted_origins: config.methods.trusted_origins.clone(),
        };
        Self { all: Arc::new(all), allow: None, deny: Vec::new() }
    }

    /// Returns the policy of one client: the rules for all clients, without the methods that `allow` (if given) lacks
    /// or `deny` lists. Narrowing a narrowed policy replaces the earlier lists.
    #[must_use]
    pub fn narrowed(&self, allow: Option<&[String]>, deny: &[String]) -> Self {
        Self { all: self.all.clone(), allow: allow.map(globs), deny: globs(deny) }
    }

    /// Returns whether the proxy serves only the six methods in [`Query::METHODS`], and refuses invalid parameters
    /// instead of forwarding them.
    pub(crate) fn is_strict(&self) -> bool {
        self.all.strict
    }

    /// Returns an error if the call is refused. On development chains, tests may control the node.
    pub(crate) fn check(
        &self,
        method: &str,
        origin: Option<&HeaderValue>,
        is_development: impl FnOnce() -> bool,
    ) -> Result<(), CallError> {
        let denied = self.allow.as_ref().is_some_and(|allow| !any(allow, method)) || any(&self.deny, method);
        let by_key = denied.then_some(MethodRule::Key);
        if let Some(rule) = self.all.refusal(method, is_development).or(by_key) {
            return Err(CallError::MethodNotAllowed { method: shown(method), rule });
        }
        if let Some(origin) = origin
            && !self.all.trusts(origin)
            && !any(&self.all.open_to_pages, method)
        {
            return Err(CallError::OriginNotTrusted { method: shown(method) });
        }
        Ok(())
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::new(&Config::default())
    }
}

// === impl ForAll ===

impl ForAll {
    /// Returns the rule that refuses the method.
    fn refusal(&self, method: &str, is_development: impl FnOnce() -> bool) -> Option<MethodRule> {
        let is_allowed = || any(&self.allow, method) || (is_development_method(method) && is_development());
        if any(&self.deny, method) {
            Some(MethodRule::Deny)
        } else if Query::METHODS.contains(&method) {
            None
        } else if self.strict {
            Some(MethodRule::Strict)
        } else {
            (!is_allowed()).then_some(MethodRule::Allow)
        }
    }

    fn trusts(&self, origin: &HeaderValue) -> bool {
        self.trusted_origins.iter().any(|trusted| trusted.as_bytes().eq_ignore_ascii_case(origin.as_bytes()))
    }
}

fn shown(method: &str) -> String {
    match method.char_indices().nth(SHOWN_METHOD) {
        None => method.to_owned(),
        Some((end, _)) => format!("{}…", &method[..end]),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::proxy::MethodsConfig;

    fn glob(glob: &str) -> Glob {
        Glob::try_new(glob).unwrap()
    }

    fn check(config: &Config, method: &'static str, origin: Option<&'static str>) -> Result<(), CallError> {
        checked_by(&Policy::new(config), method, origin)
    }

    fn checked_by(
        policy: &Policy,
        method: &'static str,
        origin: Option<&'static str>,
    ) -> Result<(), CallError> {
        policy.check(method, origin.map(HeaderValue::from_static).as_ref(), || false)
    }

    #[test]
    fn development_methods_are_allowed_on_development_chains() {
        let trusted_origins = vec!["https://app.example.org".to_owned()];
        let methods = MethodsConfig { trusted_origins, ..MethodsConfig::default() };
        let config = Config { methods, ..Config::default() };
        let strict = Config { strict: true, ..config.clone() };
        let deny = MethodsConfig { deny: vec!["anvil_*".to_owned()], ..config.methods.clone() };
        let denied = Config { methods: deny, ..config.clone() };
        let check = |config: &Config, method: &str, origin: Option<&'static str>| {
            Policy::new(config).check(method, origin.map(HeaderValue::from_static).as_ref(), || true)
        };
        for method in ["anvil_mine", "evm_snapshot", "hardhat_setBalance"] {
            assert!(check(&config, method, None).is_ok(), "{method}");
            assert!(check(&config, method, Some("https://app.example.org")).is_ok(), "{method}");
            let page = check(&config, method, Some("http://localhost:3000"));
            assert!(matches!(page, Err(CallError::OriginNotTrusted { .. })), "{method}");
            assert!(check(&strict, method, None).is_err(), "{method}");
            assert!(checked_by(&Policy::new(&config), "anvil_mine", None).is_err());
        }
        assert!(check(&denied, "anvil_mine", None).is_err());
        assert!(check(&config, "debug_traceTransaction", None).is_err());
        let key = Policy::new(&config).narrowed(Some(&["eth_*".to_owned()]), &[]);
        assert!(key.check("anvil_mine", None, || true).is_err());
    }

    #[test]
    fn refusals_name_the_key() {
        let message = |config: &Config, method| check(config, method, None).unwrap_err().to_string();
        let config = Config::default();
        assert_eq!(
            message(&config, "trace_block"),
            "the method trace_block is not served here; to serve it, add it to methods.allow"
        );
        let strict = Config { strict: true, ..Config::default() };
        assert!(message(&strict, "eth_call").contains("strict"));
        let deny = MethodsConfig { deny: vec!["eth_call".to_owned()], ..MethodsConfig::default() };
        let denied = Config { methods: deny, ..Config::default() };
        assert!(message(&denied, "eth_call").contains("methods.deny"));
        let key = Policy::default().narrowed(None, &["eth_call".to_owned()]);
        let error = checked_by(&key, "eth_call", None).unwrap_err().to_string();
        assert!(error.contains("http.keys"), "{error}");
    }

    #[test]
    fn narrowed_policy_allows_nothing_more() {
        let wide = Policy::default();
        let globs = |globs: &[&str]| globs.iter().map(|glob| (*glob).to_owned()).collect::<Vec<_>>();
        let narrow = wide.narrowed(Some(&globs(&["eth_get*", "debug_*"])), &globs(&["eth_getLogs"]));
        for (method, is_let_through) in [
            ("eth_getBlockByHash", true),
            ("eth_getBalance", true),
            ("eth_getLogs", false),
            ("eth_call", false),
            ("debug_traceCall", false),
        ] {
            assert_eq!(checked_by(&narrow, method, None).is_ok(), is_let_through, "{method}");
        }
        let page = Some("https://evil.example.org");
        assert!(checked_by(&wide.narrowed(None, &[]), "eth_call", page).is_ok());
        assert!(checked_by(&wide.narrowed(None, &[]), "eth_sign", page).is_err());
    }

    #[test]
    fn wallet_methods_are_allowed_by_default() {
        let config = Config::default();
        for method in
            ["eth_getBlockByHash", "eth_call", "net_version", "web3_clientVersion", "eth_sendTransaction"]
        {
            assert!(check(&config, method, None).is_ok(), "{method}");
        }
        for method in [
            "debug_traceTransaction",
            "admin_peers",
            "personal_sign",
            "",
            "Eth_call",
            "xeth_call",
            "anvil_mine",
        ] {
            assert!(
                matches!(check(&config, method, None), Err(CallError::MethodNotAllowed { .. })),
                "{method}"
            );
        }
    }

    #[test]
    fn strict_serves_only_the_six_operations_and_deny_wins() {
        let strict = Config { strict: true, ..Config::default() };
        assert!(check(&strict, "eth_getTransactionReceipt", None).is_ok());
        assert!(check(&strict, "eth_call", None).is_err());
        let deny = MethodsConfig { deny: vec!["eth_get*Receipt".to_owned()], ..MethodsConfig::default() };
        let config = Config { methods: deny, ..Config::default() };
        assert!(check(&config, "eth_getTransactionReceipt", None).is_err());
        assert!(check(&config, "eth_getTransactionByHash", None).is_ok());
    }

    #[test]
    fn the_six_operations_need_no_allow_entry() {
        let none = MethodsConfig { allow: Vec::new(), ..MethodsConfig::default() };
        let config = Config { methods: none, ..Config::default() };
        assert!(check(&config, "eth_getBlockByNumber", None).is_ok());
        assert!(check(&config, "eth_blockNumber", None).is_err());
    }

    #[test]
    fn untrusted_pages_may_call_listed_methods_only() {
        let methods = MethodsConfig {
            allow: vec!["*".to_owned()],
            trusted_origins: vec!["https://app.example.org".to_owned()],
            ..MethodsConfig::default()
        };
        let config = Config { methods, ..Config::default() };
        for method in [
            "eth_accounts",
            "eth_requestAccounts",
            "eth_coinbase",
            "eth_pendingTransactions",
            "eth_sendTransaction",
            "eth_sendTransactionSync",
            "eth_sendUnsignedTransaction",
            "eth_resend",
            "eth_sign",
            "eth_signTransaction",
            "eth_signTypedData",
            "eth_signTypedData_v4",
            "eth_methodThatANodeAddsTomorrow",
            "personal_unlockAccount",
            "wallet_requestPermissions",
            "account_signTransaction",
            "admin_addPeer",
            "miner_setEtherbase",
            "debug_setHead",
            "debug_traceTransaction",
            "anvil_impersonateAccount",
        ] {
            let evil = check(&config, method, Some("https://evil.example.org"));
            assert!(matches!(evil, Err(CallError::OriginNotTrusted { .. })), "{method}");
            assert!(check(&config, method, Some("null")).is_err(), "{method}");
            assert!(check(&config, method, Some("https://app.example.org")).is_ok(), "{method}");
            assert!(check(&config, method, None).is_ok(), "{method}");
        }
        for method in Query::METHODS.iter().copied().chain([
            "eth_sendRawTransaction",
            "eth_sendRawTransactionSync",
            "eth_call",
            "eth_gasPrice",
            "eth_newFilter",
            "eth_newPendingTransactionFilter",
            "eth_getFilterChanges",
            "eth_uninstallFilter",
            "debug_getRawBlock",
            "net_version",
        ]) {
            assert!(check(&config, method, Some("https://evil.example.org")).is_ok(), "{method}");
        }
    }

    #[test]
    fn globs_match_whole_names() {
        assert!(glob("eth_*").matches("eth_"));
        assert!(glob("*").matches(""));
        assert!(glob("a*b*c").matches("a-b-b-c"));
        assert!(!glob("a*b*c").matches("a-c-b"));
        assert!(!glob("ab*ba").matches("aba"));
        assert!(!glob("eth_call").matches("eth_callMany"));
        assert!(Glob::try_new("eth_[a]").is_err() && Glob::try_new("").is_err());
    }

    proptest! {
        #[test]
        fn globs_agree_with_a_naive_matcher(pattern in "[ab*]{1,8}", name in "[ab]{0,8}") {
            fn naive(pattern: &[u8], name: &[u8]) -> bool {
                match pattern.split_first() {
                    None => name.is_empty(),
                    Some((b'*', rest)) => (0..=name.len()).any(|skip| naive(rest, &name[skip..])),
                    Some((letter, rest)) => name.split_first().is_some_and(|(first, name)| first == letter && naive(rest, name)),
                }
            }
            prop_assert_eq!(glob(&pattern).matches(&name), naive(pattern.as_bytes(), name.as_bytes()));
        }
    }
}
