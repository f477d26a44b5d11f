#pragma once

#include <ATen/core/ScalarType.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "kernels/group_format.h"

namespace strait::stages {

// How the values of one direction of a boundary are sent in training.
struct DirectionOptions {
  std::string codec = "raw";  // a name of codec::codecs()
  int bits = 4;               // of fixed and delta; of auto the least
  int first_bits = 8;         // of a sample's first visit, in delta and auto; 16: bfloat16
  int group = 64;             // values that share a scale
  bool rotate = false;
  kernels::Rounding rounding = kernels::Rounding::nearest;
};

// One boundary, in the same words at both its ends.
struct BoundaryOptions {
  std::string name;  // as reports call it: "0.0>1.0"
  // Of the chunk that sends activations, on the data's way; see schedules/pipeline_shape.h.
  std::int64_t place = 0;
  DirectionOptions forward;   // activations
  DirectionOptions backward;  // gradients
  // What is remembered of the activations. The limits are of this boundary alone, and must be the
  // same at both ends, or one forgets what the other builds on.
  kernels::CacheFormat cache_kind = kernels::CacheFormat::bfloat16;
  std::uint64_t cache_bytes = 0;       // of memory; beyond it
  std::uint64_t cache_disk_bytes = 0;  // of a file in
  std::filesystem::path cache_folder;  // this folder of this end
};

}  // namespace strait::stages
