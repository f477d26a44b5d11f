#pragma once

namespace strait::base {

// The version and a hash over all sources: "0.1.0-1a2b3c4d5e6f". Two programs with the same id use
// the same protocols.
const char* build_id();

// Whether its stages can compute on GPUs, which means that it was built with a libtorch with CUDA.
// Builds of the same id may differ in this, and may be mixed in one run.
bool build_has_cuda();

}  // namespace strait::base
