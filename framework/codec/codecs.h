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

// What an `auto` encoder asks at every step: see SampleEncoderOptions::choose.
using ChooseWay = std::function<Choice(store::Step, const Traffic&)>;

// One direction of one boundary in training, in the words of a recipe's [codec]. Each codec reads
// what it knows.
struct CodecSettings {
  int bits = 4;        // of fixed and delta; of auto the least
  int first_bits = 8;  // of a sample's first visit, in delta and auto; 16: bfloat16
  int group = 64;      // values that share a scale
  bool rotate = false;
  kernels::Rounding rounding = kernels::Rounding::nearest;
  at::ScalarType wire = at::kFloat;    // of raw
  at::ScalarType result = at::kFloat;  // what decoders give
  std::uint64_t key = 0;               // of everything random: seed and boundary, mixed
  bool remembers = false;  // the run has a cache for this direction, and samples come back
  // Makes what an `auto` encoder asks at every step; empty: what is chosen without any measurement
  // stays.
  std::function<ChooseWay(const ChoiceLimits&)> chooser;
};

// Of one message behind its head, as forecast: of rows that nobody remembers, and of others.
struct PayloadBytes {
  double first = 0;
  double known = 0;
};

// What a message carries, on average.
struct PayloadLoad {
  double rows = 0;
  double tokens = 0;  // of all rows, without padding
  std::int64_t width = 0;
};

// A codec under the name that recipes use. Its two ends are made apart, in two processes, by the
// same settings.
struct CodecOffer {
  // Whether both ends keep what they were sent last of each sample: `where_samples_return` only in
  // runs that visit some sample again. What they keep it in is handed to them; null: they may not.
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
