#pragma once

#include "framework/net/link.h"

namespace strait::net {

// A wait, in words that fit the report's sentence.
struct Wait {
  std::string process;  // "stage 2.0"
  std::string what;     // "forward of micro-batch 7"
  std::chrono::steady_clock::time_point since;
};

// "stage 2.0 waits 41 s for forward of micro-batch 7 from stage 1.0 (host b): 3.1 of 16.8 MB
// received, last byte 38 s ago". Pure: the clock is an argument.
std::string stall_report(const Wait& wait, const LinkState& link,
                         std::chrono::steady_clock::time_point now);

}  // namespace strait::net
