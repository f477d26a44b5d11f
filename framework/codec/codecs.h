#pragma once

#include <ATen/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "framework/catalogue.h"
#include "framework/codec/activation_cache.h"
#include "framework/codec/choice.h"
#include "framework/codec/codec.h"
#include "kernels/group_format.h"

namespace strait::codec {

// Called by an `auto` encoder at every step: see SampleEncoderOptions::choose.
using ChooseWay = std::function<Choice(store::Step, const Traffic&)>;

// The settings of one direction of one boundary in training, named as in a recipe's [codec]. Each
// codec reads the fields that it uses.
struct CodecSettings {
  int bits = 4;        // of fixed and delta; the minimum of auto
  int first_bits = 8;  // of rows that miss the cache, in delta and auto; 16: bfloat16
  int group = 64;      // values that share a scale
  bool rotate = false;
  kernels::Rounding rounding = kernels::Rounding::nearest;
  at::ScalarType wire = at::kFloat;    // of raw
  at::ScalarType result = at::kFloat;  // element type of decoded tensors
  std::uint64_t key = 0;               // of all random numbers: seed and boundary, mixed
  bool remembers = false;  // this direction has a cache, and samples are used more than once
  // Makes the function that an `auto` encoder calls at every step; empty: first_choice() stays.
  std::function<ChooseWay(const ChoiceLimits&)> chooser;
};

// The forecast size of one message's payload, without the header.
struct PayloadBytes {
  double first = 0;  // if every row misses the cache
  double known = 0;  // if every row hits
};

// The average contents of a message.
struct PayloadLoad {
  double rows = 0;
  double tokens = 0;  // of all rows, without padding
  std::int64_t width = 0;
};

// A codec under the name that recipes use. Encoder and decoder are constructed in two processes
// from the same settings.
struct CodecOffer {
  // Whether both ends cache the last row of each sample; `where_samples_return`: only in runs that
  // use some sample more than once. The cache is passed in; null: no caching.
  enum class Remembers : std::uint8_t { nothing, samples, where_samples_return };
  using Cache = std::unique_ptr<ActivationCache>;

  std::string name;
  Remembers remembers = Remembers::nothing;  // of activations
  bool for_gradients = true;
  std::unique_ptr<Encoder> (*encoder)(const CodecSettings&, Cache) = nullptr;
  std::unique_ptr<Decoder> (*decoder)(const CodecSettings&, Cache) = nullptr;
  PayloadBytes (*payload)(const CodecSettings&, const PayloadLoad&) = nullptr;
};

// raw, fixed, delta and auto, and those of plugins.
Catalogue<CodecOffer>& codecs();

}  // namespace strait::codec
