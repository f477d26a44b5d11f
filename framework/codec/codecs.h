#pragma once

#include <ATen/core/ScalarType.h>
#include <c10/core/Device.h>

#include "framework/catalogue.h"
#include "framework/codec/activation_cache.h"
#include "framework/codec/choice.h"
#include "framework/codec/codec.h"
#include "framework/codec/settings.h"

namespace strait::codec {

// Called by an `auto` encoder at every step: see SampleEncoderOptions::choose.
using ChooseWay = std::function<Choice(store::Step, const Traffic&)>;

// The settings of the encoder or decoder of one direction of one boundary in training.
struct DirectionSettings {
  CodecSettings codec;  // of the run
  Direction direction = Direction::forward;
  at::ScalarType result = at::kFloat;  // element type of decoded tensors
  std::uint64_t key = 0;               // seeds all random numbers: run seed and boundary, mixed
  // The device of the tensors, if this build has kernels for it. They may then be encoded and
  // decoded there.
  at::Device device = at::kCPU;
  bool has_cache = false;  // this direction has a cache, and some samples are used more than once
  std::int64_t boundaries = 1;  // of the pipeline
  // Makes the function that an `auto` encoder calls at every step. Empty: first_choice() stays.
  std::function<ChooseWay(const ChoiceLimits&)> chooser;

  int bits() const { return codec.bits(direction); }
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
  // Whether both ends cache the last row of each sample. `if_samples_repeat`: only in runs that use
  // a sample more than once. The cache is passed in; null: no caching.
  enum class Caching : std::uint8_t { none, always, if_samples_repeat };
  using Cache = std::unique_ptr<ActivationCache>;

  std::string name;
  Caching caching = Caching::none;  // of activations
  bool for_gradients = true;
  std::unique_ptr<Encoder> (*encoder)(const DirectionSettings&, Cache) = nullptr;
  std::unique_ptr<Decoder> (*decoder)(const DirectionSettings&, Cache) = nullptr;
  PayloadBytes (*payload)(const DirectionSettings&, const PayloadLoad&) = nullptr;
  Caching gradient_caching = Caching::none;
  bool has_state = false;  // a direction without entries has a cache, too, which saves its state
  // Bytes of float32 values that one thread encodes or decodes in a second, for forecasts.
  double coded_bytes_per_second = 5e9;

  Caching caching_of(Direction direction) const {
    return direction == Direction::forward ? caching : gradient_caching;
  }
};

// raw, fixed, delta, transform, auto, and the codecs of plugins.
Catalogue<CodecOffer>& codecs();

}  // namespace strait::codec
