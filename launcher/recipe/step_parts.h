#pragma once

#include <cstdint>
#include <string>

#include "framework/net/identity.h"

namespace strait::plan {

// A part of a training step, with its forecast.
struct StepPart {
  // compute: forwards and backwards of a process. update: what follows them in it: norm, clipping,
  // optimizer. encode, decode: of what it sends and receives over boundaries, during its compute.
  // link: the bytes that it sends over a link. sync: waiting for rounds of replicas. wait: of the
  // process that works longest, for others. step: the whole step.
  enum class Kind : std::uint8_t { step, compute, update, encode, decode, link, sync, wait };

  Kind kind = Kind::step;
  net::ProcessName process;        // of compute, update, encode, decode and link
  std::string name;                // "compute of stage 1.0 (host a)"
  std::string link = {};           // of a link, its name
  double seconds = 0;              // after the first epoch
  double first_epoch_seconds = 0;  // in the first epoch, whose samples miss activation caches
  bool assumed = false;            // by a speed that was neither measured nor stated
};

}  // namespace strait::plan
