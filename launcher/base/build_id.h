#pragma once

namespace strait::base {

// The version and a hash over all sources: "0.1.0-1a2b3c4d5e6f". Two programs with the same id use
// the same protocols.
const char* build_id();

}  // namespace strait::base
