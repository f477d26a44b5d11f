#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <span>

#include "framework/net/link.h"
#include "launcher/run/inference.h"

namespace strait::worker {

// What one part of a model hands to the next: the request, and the hidden state where it has one
// (float32 [rows, length, hidden], as it lies in memory: stages answer as one process would).
//
//     u32 size of the request   0: no request follows, ever
//     the request               a control message (control_message.h)
//     i64 rows, length, hidden  0, 0, 0: none
//     float32 × rows · length · hidden
struct Activation {
  run::InferenceRequest request;
  at::Tensor values;  // undefined: none
};

net::Frame to_frame(const Activation& activation);
net::Frame end_frame();

// None of end_frame(). MessageError: the frame is neither.
std::optional<Activation> read_activation(std::span<const std::byte> frame);

}  // namespace strait::worker
