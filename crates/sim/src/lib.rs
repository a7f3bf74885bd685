//! Virtual time: runs a job on a modelled machine
