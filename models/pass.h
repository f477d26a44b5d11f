#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "kernels/causal_attention.h"
#include "kernels/random.h"
#include "models/rotary.h"

namespace strait::models {

class KeyValueCache;
class SliceKeys;
struct ExpertLoad;

// The part of its rows that a pass computes, where they are trained slice by slice.
struct PassSlice {
  std::shared_ptr<SliceKeys> keys;  // of the micro-batch; null: whole rows
  int index = 0;
  bool trains = false;  // the layers that run have a backward
};

// What all layers need to know of the micro-batch that they process. A value: a copy that is kept
// with the micro-batch lets a forward run again.
struct Pass {
  at::Tensor positions;  // int64 [rows, length], on the CPU whatever the layers' device
  // Tokens attend inside these documents. Tokens outside of them are padding. Not used with a
  // cache.
  std::vector<kernels::AttentionSpan> documents;
  std::shared_ptr<RotaryTables> rotary;  // of `positions`, filled by the layers
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint64_t micro_batch = 0;
  bool training = false;           // dropout is on
  bool adapters = true;            // false: as without them
  double noise = 0;                // NEFTune's alpha: uniform noise on token embeddings
  KeyValueCache* cache = nullptr;  // keys and values of earlier tokens, for generation; borrowed
  PassSlice slice;
  double balance_share = 1;    // of this micro-batch in the balance loss of a step (ExpertMlp)
  ExpertLoad* load = nullptr;  // counts the tokens of experts; borrowed; null: not counted

  kernels::DropoutKey dropout_key(int layer, int site) const;
};

// For packed rows: `documents` holds the lengths of each row's documents; the rest of `length` is
// padding at the end. Positions restart in every document, and attention stays inside it. `past`,
// of slices of rows: the tokens of each row's first document that earlier slices have.
Pass make_pass(const std::vector<std::vector<std::int64_t>>& documents, std::int64_t length,
               const std::vector<std::int64_t>& past = {});

// For generation: `count` tokens of each row, after those in `cache`.
Pass make_pass(KeyValueCache& cache, std::int64_t rows, std::int64_t count);

}  // namespace strait::models
