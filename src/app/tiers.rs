//! Opens the configured cache tiers.

use std::{sync::Arc, time::Duration};

use prometheus_client::registry::Registry;

use super::error::StartError;
use crate::{
    budget::ByteBudget,
    cache::{self, Config, Disk, TierMetrics, Tiers, redis::Redis, tier::Tier},
    config::Problem,
};

/// Time limit of a disk read. A disk that takes longer is slower than the node.
const DISK_PATIENCE: Duration = Duration::from_secs(1);

/// Time limit of a Redis read, in multiples of the timeout that the Redis tier applies itself. The limit only matters
/// if that timeout does not take effect.
const REDIS_MARGIN: u32 = 2;

/// Opens the configured tiers. Redis may be down. Fails if another process uses the directory of the disk tier.
pub(super) fn open(
    config: &Config,
    budget: ByteBudget,
    registry: &mut Registry,
) -> Result<Tiers, StartError> {
    let mut tiers: Vec<(Arc<dyn Tier>, Duration)> = Vec::new();
    if let Some(disk) = &config.disk {
        tiers.push((Arc::new(Disk::open(disk).map_err(StartError::Disk)?), DISK_PATIENCE));
    }
    if let Some(config) = &config.redis {
        let redis =
            Redis::try_new(config).map_err(|error| StartError::Config(Problem::new("cache.redis", error)))?;
        tiers.push((Arc::new(redis), config.timeout * REDIS_MARGIN));
    }
    let metrics = TierMetrics::register(registry);
    let tiers = Tiers::new(tiers, budget, metrics.clone());
    cache::register_tier_gauges(&metrics, &tiers, registry);
    Ok(tiers)
}
