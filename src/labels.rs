//! Labels of metrics.

/// Names and values of labels, in the order in which Prometheus sees them.
pub type Labels<const N: usize> = [(&'static str, &'static str); N];
