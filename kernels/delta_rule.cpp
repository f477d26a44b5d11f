#include "kernels/delta_rule.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>

#include "kernels/weight_gradient_queue.h"

namespace strait::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t kChunk = 64;      // tokens
constexpr double kLengthEpsilon = 1e-6;  // added to the square of a length

struct Spans : public torch::CustomClassHolder {
  explicit Spans(std::vector<AttentionSpan> all) : list(std::move(all)) {}
  std::vector<AttentionSpan> list;
};

at::ScalarType wide_type(const at::Tensor& values) {
  return values.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

at::Tensor tokens_of(const at::Tensor& values, const AttentionSpan& span) {
  return values.select(0, span.row).narrow(0, span.begin, span.length);
}

// ---- chunks of a span: [chunks, heads, tokens, width], in float32 -------------------------------

at::Tensor to_chunks(const at::Tensor& values, const AttentionSpan& span) {
  const std::int64_t size = std::min(kChunk, span.length);
  const std::int64_t chunks = (span.length + size - 1) / size;
  const at::Tensor own = tokens_of(values, span).to(wide_type(values));
  return at::constant_pad_nd(own, {0, 0, 0, 0, 0, chunks * size - span.length})
      .unflatten(0, {chunks, size})
      .transpose(1, 2)
      .contiguous();
}

void from_chunks(const at::Tensor& chunks, const AttentionSpan& span, const at::Tensor& into) {
  tokens_of(into, span).copy_(chunks.transpose(1, 2).flatten(0, 1).narrow(0, 0, span.length));
}

at::Tensor transposed(const at::Tensor& matrices) { return matrices.transpose(2, 3); }

at::Tensor dots(const at::Tensor& left, const at::Tensor& right) {
  return at::mul(left, right).sum(-1, /*keepdim=*/true);
}

// Vectors of length one.
struct Directions {
  at::Tensor vectors;
  at::Tensor scales;  // 1 / length

  explicit Directions(const at::Tensor& values)
      : scales(dots(values, values).add_(kLengthEpsilon).rsqrt_()) {
    vectors = at::mul(values, scales);
  }

  // `slopes`: of all heads that share these.
  at::Tensor gradient(const at::Tensor& slopes) const {
    const at::Tensor slope = slopes.unflatten(1, {vectors.size(1), -1}).sum(2);
    return at::sub(slope, at::mul(vectors, dots(vectors, slope))).mul_(scales);
  }
};

// What the chunks of a span compute without the state. The values that a chunk writes to it, W,
// solve (1 + beta · overlaps) · W = beta · (value - since · key · S), of the state S at its start.
struct Chunks {
  Directions query;
  Directions key;
  at::Tensor queries;  // for each head, with the factor 1 / √width
  at::Tensor keys;
  at::Tensor value;
  at::Tensor beta;      // [chunks, heads, tokens, 1]
  at::Tensor since;     // the state's factor from the chunk's start to each token
  at::Tensor until;     // from each token to the chunk's end
  at::Tensor between;   // [chunks, heads, tokens, tokens]: from a token to a later one; else 0
  at::Tensor overlaps;  // of keys with earlier ones
  at::Tensor inverse;   // of 1 + beta · overlaps
  at::Tensor scores;    // of queries with keys

  Chunks(const DeltaHeads& heads, const AttentionSpan& span);
  std::int64_t count() const { return value.size(0); }
  at::Tensor whole() const { return since.narrow(2, since.size(2) - 1, 1); }
  double scale() const { return 1 / std::sqrt(static_cast<double>(queries.size(3))); }
};

Chunks::Chunks(const DeltaHeads& heads, const AttentionSpan& span)
    : query(to_chunks(heads.query, span)),
      key(to_chunks(heads.key, span)),
      queries(query.vectors.repeat_interleave(heads.value.size(2) / heads.key.size(2), 1)),
      keys(key.vectors.repeat_interleave(heads.value.size(2) / heads.key.size(2), 1)),
      value(to_chunks(heads.value, span)),
      beta(to_chunks(heads.beta.unsqueeze(3), span)) {
  queries.mul_(scale());
  const at::Tensor sums = to_chunks(heads.decay.unsqueeze(3), span).cumsum(2);
  since = sums.exp();
  until = at::sub(sums.narrow(2, sums.size(2) - 1, 1), sums).exp_();
  // Above the diagonal the difference is positive, and its exponential might overflow.
  between = at::sub(sums, transposed(sums)).tril_().exp_().tril_();
  overlaps = at::matmul(keys, transposed(keys)).mul_(between).tril_(-1);
  scores = at::matmul(queries, transposed(keys)).mul_(between);
  const at::Tensor one = at::eye(value.size(2), value.options());
  inverse = at::linalg_solve_triangular(at::mul(overlaps, beta), one.expand_as(overlaps),
                                        /*upper=*/false, /*left=*/true, /*unitriangular=*/true);
}

struct Scan {
  at::Tensor states;   // [chunks, heads, key width, width]: at the start of each chunk
  at::Tensor written;  // W of each chunk
  at::Tensor last;     // the state after all chunks
};

Scan scan(const Chunks& chunks, const at::Tensor& first) {
  const at::Tensor values = at::matmul(chunks.inverse, at::mul(chunks.value, chunks.beta));
  const at::Tensor read =
      at::matmul(chunks.inverse, at::mul(chunks.keys, chunks.since).mul_(chunks.beta));
  const at::Tensor into = transposed(at::mul(chunks.keys, chunks.until));
  const at::Tensor whole = chunks.whole();
  Scan result{first.unsqueeze(0).repeat({chunks.count(), 1, 1, 1}), at::empty_like(values), first};
  for (std::int64_t i = 0; i < chunks.count(); ++i) {
    result.states[i].copy_(result.last);
    const at::Tensor written = at::baddbmm(values[i], read[i], result.last, 1, -1);
    result.written[i].copy_(written);
    result.last = at::baddbmm(at::mul(result.last, whole[i]), into[i], written);
  }
  return result;
}

at::Tensor zero_state(const Chunks& chunks) {
  return at::zeros({chunks.value.size(1), chunks.keys.size(3), chunks.value.size(3)},
                   chunks.value.options());
}

at::Tensor results_of(const Chunks& chunks, const Scan& found) {
  return at::matmul(at::mul(chunks.queries, chunks.since), found.states)
      .add_(at::matmul(chunks.scores, found.written));
}

struct ScanSlopes {
  at::Tensor states;  // of the state at the end of each chunk
  at::Tensor right;   // of the right side of the equation for W
};

ScanSlopes scan_backward(const Chunks& chunks, const at::Tensor& slope) {
  const at::Tensor inverse = transposed(chunks.inverse);
  const at::Tensor own = at::matmul(inverse, at::matmul(transposed(chunks.scores), slope));
  const at::Tensor later = at::matmul(inverse, at::mul(chunks.keys, chunks.until));
  const at::Tensor read = at::matmul(transposed(at::mul(chunks.queries, chunks.since)), slope);
  const at::Tensor seen = transposed(at::mul(chunks.keys, chunks.since).mul_(chunks.beta));
  const at::Tensor whole = chunks.whole();
  ScanSlopes result{at::empty_like(read), at::empty_like(own)};
  at::Tensor state = zero_state(chunks);
  for (std::int64_t i = chunks.count() - 1; i >= 0; --i) {
    result.states[i].copy_(state);
    const at::Tensor right = at::baddbmm(own[i], later[i], state);
    result.right[i].copy_(right);
    state = at::baddbmm(at::mul(state, whole[i]).add_(read[i]), seen[i], right, 1, -1);
  }
  return result;
}

DeltaHeads chunk_gradients(const Chunks& chunks, const Scan& found, const at::Tensor& slope) {
  const ScanSlopes slopes = scan_backward(chunks, slope);
  const at::Tensor& keys = chunks.keys;
  DeltaHeads into;
  into.value = at::mul(slopes.right, chunks.beta);

  const at::Tensor of_scores = at::matmul(slope, transposed(found.written));
  const at::Tensor of_overlaps =
      at::matmul(slopes.right, transposed(found.written)).tril_(-1).neg_();
  const at::Tensor by_scores = at::mul(of_scores, chunks.between);
  const at::Tensor by_overlaps = at::mul(of_overlaps, chunks.between).mul_(chunks.beta);
  const at::Tensor states = transposed(found.states);
  const at::Tensor query_by_state = at::matmul(slope, states).mul_(chunks.since);
  const at::Tensor key_by_start =
      at::matmul(slopes.right, states).mul_(chunks.since).mul_(chunks.beta);
  const at::Tensor key_by_end =
      at::matmul(found.written, transposed(slopes.states)).mul_(chunks.until);
  const at::Tensor query = at::add(query_by_state, at::matmul(by_scores, keys));
  const at::Tensor key = at::matmul(transposed(by_scores), chunks.queries)
                             .add_(at::matmul(by_overlaps, keys))
                             .add_(at::matmul(transposed(by_overlaps), keys))
                             .add_(key_by_end)
                             .sub_(key_by_start);
  into.query = chunks.query.gradient(at::mul(query, chunks.scale()));
  into.key = chunks.key.gradient(key);

  const at::Tensor pairs = at::mul(of_overlaps, chunks.overlaps);
  const at::Tensor missing =
      at::sub(chunks.value, at::matmul(keys, found.states).mul_(chunks.since));
  into.beta = dots(slopes.right, missing).add_(pairs.sum(-1, /*keepdim=*/true));

  // Of the sums of the decays up to each token: an exponential's slope is its value.
  const at::Tensor factors = at::mul(of_scores, chunks.scores).add_(at::mul(pairs, chunks.beta));
  const at::Tensor ends = dots(keys, key_by_end);
  at::Tensor sums = factors.sum(-1, /*keepdim=*/true)
                        .sub_(factors.sum(-2).unsqueeze(-1))
                        .add_(dots(chunks.queries, query_by_state))
                        .sub_(dots(keys, key_by_start))
                        .sub_(ends);
  const at::Tensor kept = at::mul(slopes.states, found.states).sum({2, 3}, /*keepdim=*/true);
  sums.narrow(2, sums.size(2) - 1, 1)
      .add_(ends.sum(2, /*keepdim=*/true))
      .add_(kept.mul_(chunks.whole()));
  into.decay = sums.flip(2).cumsum(2).flip(2);
  return into;
}

struct DeltaRule : public torch::autograd::Function<DeltaRule> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& query,
                            const at::Tensor& key, const at::Tensor& value, const at::Tensor& beta,
                            const at::Tensor& decay, const std::vector<AttentionSpan>& spans) {
    const DeltaHeads heads{query, key, value, beta, decay};
    at::Tensor result = at::zeros(value.sizes(), value.options());
    for (const AttentionSpan& span : spans) {
      const Chunks chunks(heads, span);
      from_chunks(results_of(chunks, scan(chunks, zero_state(chunks))), span, result);
    }
    context->save_for_backward({query, key, value, beta, decay});
    context->saved_data["spans"] = c10::IValue::make_capsule(c10::make_intrusive<Spans>(spans));
    return result;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const DeltaHeads heads{saved[0], saved[1], saved[2], saved[3], saved[4]};
    const auto capsule = context->saved_data["spans"].toCapsule();
    variable_list into(saved.size() + 1);  // the last is that of the spans
    for (std::size_t i = 0; i < saved.size(); ++i) into[i] = at::zeros_like(saved[i]);
    for (const AttentionSpan& span : dynamic_cast<const Spans*>(capsule.get())->list) {
      const Chunks chunks(heads, span);
      const DeltaHeads own =
          chunk_gradients(chunks, scan(chunks, zero_state(chunks)), to_chunks(gradients[0], span));
      from_chunks(own.query, span, into[0]);
      from_chunks(own.key, span, into[1]);
      from_chunks(own.value, span, into[2]);
      from_chunks(own.beta, span, into[3].unsqueeze(3));
      from_chunks(own.decay, span, into[4].unsqueeze(3));
    }
    return into;
  }
};

// ---- convolution --------------------------------------------------------------------------------

// Calls `each(back, count, tap)` for every tap that reaches a token of the span: it takes the first
// `count` tokens and adds to those that are `back` later.
template <class Each>
void for_taps(const AttentionSpan& span, std::int64_t taps, const Each& each) {
  for (std::int64_t back = 0; back < std::min(taps, span.length); ++back) {
    each(back, span.length - back, taps - 1 - back);
  }
}

at::Tensor convolve(const at::Tensor& input, const at::Tensor& taps,
                    const std::vector<AttentionSpan>& spans) {
  at::Tensor sums = at::zeros(input.sizes(), taps.options());
  for (const AttentionSpan& span : spans) {
    const at::Tensor own = tokens_of(input, span).to(taps.scalar_type());
    const at::Tensor into = tokens_of(sums, span);
    for_taps(span, taps.size(0), [&](std::int64_t back, std::int64_t count, std::int64_t tap) {
      into.narrow(0, back, count).addcmul_(own.narrow(0, 0, count), taps[tap]);
    });
  }
  return sums;
}

struct CausalConvolution : public torch::autograd::Function<CausalConvolution> {
  // [tokens, channels]
  static at::Tensor taps_of(const at::Tensor& weight) {
    return weight.squeeze(1).t().to(wide_type(weight)).contiguous();
  }

  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight, const std::vector<AttentionSpan>& spans) {
    context->save_for_backward({input, weight});
    context->saved_data["spans"] = c10::IValue::make_capsule(c10::make_intrusive<Spans>(spans));
    at::Tensor sums = convolve(input, taps_of(weight), spans);
    return at::silu_(sums).to(input.scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& input = saved[0];
    const auto capsule = context->saved_data["spans"].toCapsule();
    const std::vector<AttentionSpan>& spans = dynamic_cast<const Spans*>(capsule.get())->list;
    const at::Tensor taps = taps_of(saved[1]);
    const at::Tensor slope =
        at::silu_backward(gradients[0].to(taps.scalar_type()), convolve(input, taps, spans));
    at::Tensor into = at::zeros_like(slope);
    const at::Tensor of_taps = at::zeros_like(taps);
    for (const AttentionSpan& span : spans) {
      const at::Tensor own = tokens_of(input, span).to(taps.scalar_type());
      const at::Tensor own_slope = tokens_of(slope, span);
      const at::Tensor own_into = tokens_of(into, span);
      for_taps(span, taps.size(0), [&](std::int64_t back, std::int64_t count, std::int64_t tap) {
        const at::Tensor later = own_slope.narrow(0, back, count);
        own_into.narrow(0, 0, count).addcmul_(later, taps[tap]);
        of_taps[tap].add_(at::mul(later, own.narrow(0, 0, count)).sum(0));
      });
    }
    if (saved[1].requires_grad()) {
      leaf_gradient(saved[1]).add_(of_taps.t().unsqueeze(1));
      announce_leaf_gradient(saved[1]);
    }
    return {into.to(input.scalar_type()), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor delta_rule(const DeltaHeads& heads, const std::vector<AttentionSpan>& spans) {
  TORCH_INTERNAL_ASSERT(
      heads.key.sizes() == heads.query.sizes() && heads.value.size(2) % heads.key.size(2) == 0,
      "the delta rule of keys ", heads.key.sizes(), " and values ", heads.value.sizes());
  return DeltaRule::apply(heads.query, heads.key, heads.value, heads.beta, heads.decay, spans);
}

at::Tensor continue_delta_rule(const DeltaHeads& heads, const at::Tensor& state) {
  const at::NoGradGuard no_grad;
  at::Tensor result = at::empty(heads.value.sizes(), heads.value.options());
  for (std::int64_t row = 0; row < heads.value.size(0); ++row) {
    const AttentionSpan span{row, 0, heads.value.size(1)};
    const Chunks chunks(heads, span);
    const Scan found = scan(chunks, state[row]);
    from_chunks(results_of(chunks, found), span, result);
    state[row].copy_(found.last);
  }
  return result;
}

at::Tensor causal_convolution(const at::Tensor& input, const at::Tensor& weight,
                              const std::vector<AttentionSpan>& spans) {
  TORCH_INTERNAL_ASSERT(weight.is_leaf() && weight.dim() == 3 && weight.size(0) == input.size(2),
                        "a convolution of ", input.sizes(), " with weight ", weight.sizes());
  return CausalConvolution::apply(input, weight, spans);
}

}  // namespace strait::kernels
