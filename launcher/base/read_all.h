#pragma once

#include <chrono>
#include <string>

namespace strait::base {

// Everything up to the end of the stream, on behalf of `what` ("the run token"). UserError: there
// is more than `most` bytes, it has not ended within `limit`, or it cannot be read.
std::string read_all(int descriptor, const std::string& what, std::size_t most,
                     std::chrono::seconds limit);

}  // namespace strait::base
