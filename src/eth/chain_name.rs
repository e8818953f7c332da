//! Names of well-known chains, for people who read logs and the status page.

/// Chain id and name, sorted by id. The names follow chainlist.org, without "Mainnet" where the chain is known without.
const NAMES: [(u64, &str); 49] = [
    (1, "Ethereum Mainnet"),
    (10, "OP Mainnet"),
    (25, "Cronos"),
    (56, "BNB Smart Chain"),
    (97, "BNB Smart Chain Testnet"),
    (100, "Gnosis"),
    (130, "Unichain"),
    (137, "Polygon"),
    (143, "Monad"),
    (146, "Sonic"),
    (250, "Fantom Opera"),
    (252, "Fraxtal"),
    (300, "zkSync Sepolia"),
    (324, "zkSync Era"),
    (480, "World Chain"),
    (1101, "Polygon zkEVM"),
    (1284, "Moonbeam"),
    (1301, "Unichain Sepolia"),
    (1329, "Sei"),
    (1337, DEVELOPMENT),
    (1868, "Soneium"),
    (4801, "World Chain Sepolia"),
    (5000, "Mantle"),
    (5003, "Mantle Sepolia"),
    (8453, "Base"),
    (10200, "Gnosis Chiado"),
    (17000, "Holesky"),
    (31337, DEVELOPMENT),
    (34443, "Mode"),
    (42161, "Arbitrum One"),
    (42170, "Arbitrum Nova"),
    (42220, "Celo"),
    (43113, "Avalanche Fuji"),
    (43114, "Avalanche C-Chain"),
    (57073, "Ink"),
    (59141, "Linea Sepolia"),
    (59144, "Linea"),
    (80002, "Polygon Amoy"),
    (80094, "Berachain"),
    (81457, "Blast"),
    (84532, "Base Sepolia"),
    (421614, "Arbitrum Sepolia"),
    (534351, "Scroll Sepolia"),
    (534352, "Scroll"),
    (560048, "Hoodi"),
    (7331117, "Holdfast demo chain"),
    (7777777, "Zora"),
    (11155111, "Sepolia"),
    (11155420, "OP Sepolia"),
];

/// Name of the chains that anvil, Hardhat and geth's development mode serve.
const DEVELOPMENT: &str = "development chain";

/// Returns the name of a well-known chain.
pub fn chain_name(id: u64) -> Option<&'static str> {
    let at = NAMES.binary_search_by_key(&id, |(known, _)| *known).ok()?;
    Some(NAMES[at].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_chain_is_found_by_its_id() {
        assert!(NAMES.is_sorted_by(|(id, _), (next, _)| id < next), "the list is sorted, without duplicates");
        for (id, name) in NAMES {
            assert_eq!(chain_name(id), Some(name));
        }
    }

    #[test]
    fn well_known_chains_have_names() {
        for (id, name) in [
            (1, "Ethereum Mainnet"),
            (10, "OP Mainnet"),
            (8453, "Base"),
            (42161, "Arbitrum One"),
            (560048, "Hoodi"),
            (11155111, "Sepolia"),
            (31337, "development chain"),
        ] {
            assert_eq!(chain_name(id), Some(name));
        }
        assert_eq!(chain_name(0), None);
        assert_eq!(chain_name(u64::MAX), None);
    }
}
