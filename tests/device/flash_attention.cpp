// Flash attention of the test device, from its formula in float32: refuses what CUDA's refuses,
// which an implementation over strides and any type would let pass. It runs on the host's tensors
// over the device's memory, first of zeros, as all operators do.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <limits>

namespace strait::test_device {
namespace {

using MaybeTensor = std::optional<at::Tensor>;
using MaybeSize = std::optional<c10::SymInt>;

void check_values(const at::Tensor& values, const at::Tensor& query, const char* name) {
  TORCH_CHECK(values.dim() == 3, name, " of flash attention has sizes ", values.sizes(),
              ", not [tokens, heads, width]");
  TORCH_CHECK(values.stride(2) == 1, name, " of flash attention has strides ", values.strides());
  TORCH_CHECK(values.scalar_type() == query.scalar_type() && values.size(2) == query.size(2), name,
              " of flash attention is not like its queries");
}

// Where sequences begin; empty: zeros, where only sizes of results matter.
std::vector<std::int64_t> read_offsets(const at::Tensor& offsets, std::int64_t tokens,
                                       std::int64_t longest) {
  TORCH_CHECK(offsets.scalar_type() == at::kInt && offsets.dim() == 1 && offsets.is_contiguous(),
              "offsets of sequences are ", offsets.toString());
  std::vector<std::int64_t> begins;
  for (std::int64_t i = 0; i < offsets.numel(); ++i) {
    begins.push_back(offsets[i].item<std::int64_t>());
  }
  if (begins.back() == 0) return {};
  TORCH_CHECK(begins.front() == 0 && begins.back() == tokens, "sequences from ", begins.front(),
              " to ", begins.back(), " of ", tokens, " tokens");
  for (std::size_t i = 1; i < begins.size(); ++i) {
    const std::int64_t count = begins[i] - begins[i - 1];
    TORCH_CHECK(count > 0 && count <= longest, "a sequence of ", count, " tokens, the longest of ",
                longest);
  }
  return begins;
}

struct Sequence {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t keys_begin = 0;
  std::int64_t keys_end = 0;
};

struct Offsets {
  at::Tensor values;
  std::int64_t longest = 0;
};

std::vector<Sequence> check_all(const at::Tensor& query, const at::Tensor& key,
                                const at::Tensor& value, const Offsets& of_queries,
                                const Offsets& of_keys, double dropout, bool causal,
                                const MaybeSize& right) {
  TORCH_CHECK(query.scalar_type() == at::kBFloat16 || query.scalar_type() == at::kHalf,
              "flash attention of ", query.scalar_type());
  check_values(query, query, "query");
  check_values(key, query, "key");
  check_values(value, query, "value");
  TORCH_CHECK(key.sizes() == value.sizes() && query.size(1) % key.size(1) == 0 &&
                  query.size(2) % 8 == 0 && query.size(2) <= 256,
              "flash attention of queries ", query.sizes(), " to keys ", key.sizes());
  TORCH_CHECK(dropout == 0 && causal && right && *right == 0, "not as the kernels ask for it");
  const auto begins = read_offsets(of_queries.values, query.size(0), of_queries.longest);
  const auto key_begins = read_offsets(of_keys.values, key.size(0), of_keys.longest);
  TORCH_CHECK(begins.size() == key_begins.size(), "sequences of queries and of keys differ");
  std::vector<Sequence> sequences;
  for (std::size_t i = 1; i < begins.size(); ++i) {
    sequences.push_back({begins[i - 1], begins[i], key_begins[i - 1], key_begins[i]});
  }
  return sequences;
}

// [key heads, group, tokens, width] in float32.
at::Tensor by_head(const at::Tensor& values, std::int64_t begin, std::int64_t end,
                   std::int64_t key_heads) {
  return values.narrow(0, begin, end - begin)
      .to(at::kFloat)
      .transpose(0, 1)
      .unflatten(0, {key_heads, values.size(1) / key_heads});
}

// As by_head() has it to [tokens, heads, width].
at::Tensor by_token(const at::Tensor& values) { return values.flatten(0, 1).transpose(0, 1); }

// As CUDA's: the last query sees the last key.
at::Tensor scores_of(const at::Tensor& query, const at::Tensor& key, double scale,
                     const MaybeSize& left) {
  const at::Tensor place = at::arange(key.size(2), at::kLong);
  const at::Tensor own = place.narrow(0, key.size(2) - query.size(2), query.size(2));
  const at::Tensor distance = own.unsqueeze(1).sub(place.unsqueeze(0));
  at::Tensor hidden = distance.lt(0);
  if (left) hidden = hidden.logical_or(distance.gt(left->expect_int()));
  return at::matmul(query, key.transpose(2, 3))
      .mul(scale)
      .masked_fill(hidden, -std::numeric_limits<double>::infinity());
}

using Forward = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

Forward flash_forward(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                      const MaybeTensor& offsets, const MaybeTensor& key_offsets,
                      c10::SymInt longest, c10::SymInt longest_key, double dropout, bool causal,
                      bool mask, std::optional<double> scale, MaybeSize left, MaybeSize right,
                      const MaybeTensor& used, const MaybeTensor& slopes, const MaybeTensor& table,
                      std::optional<std::int64_t> splits) {
  TORCH_CHECK(!mask && !used && !slopes && !table && !splits && scale,
              "not as the kernels ask for it");
  const std::vector<Sequence> sequences =
      check_all(query, key, value, {*offsets, longest.expect_int()},
                {*key_offsets, longest_key.expect_int()}, dropout, causal, right);
  at::Tensor result = at::zeros_like(query, query.options(), at::MemoryFormat::Contiguous);
  at::Tensor exponents = at::zeros({query.size(1), query.size(0)}, at::kFloat);
  for (const auto& [begin, end, keys_begin, keys_end] : sequences) {
    const at::Tensor scores =
        scores_of(by_head(query, begin, end, key.size(1)),
                  by_head(key, keys_begin, keys_end, key.size(1)), *scale, left);
    const at::Tensor sums = scores.logsumexp(-1, /*keepdim=*/true);
    const at::Tensor attended =
        at::matmul(scores.sub(sums).exp().to(query.scalar_type()).to(at::kFloat),
                   by_head(value, keys_begin, keys_end, key.size(1)));
    result.narrow(0, begin, end - begin).copy_(by_token(attended));
    exponents.narrow(1, begin, end - begin).copy_(sums.squeeze(-1).flatten(0, 1));
  }
  return {result, exponents, at::zeros({2}, at::kLong), at::zeros({0}, at::kLong),
          at::zeros({0}, query.options())};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> flash_backward(
    const at::Tensor& slope, const at::Tensor& query, const at::Tensor& key,
    const at::Tensor& value, const at::Tensor& result, const at::Tensor& exponents,
    const at::Tensor& offsets, const at::Tensor& key_offsets, c10::SymInt longest,
    c10::SymInt longest_key, double dropout, bool causal, const at::Tensor& random,
    const at::Tensor& unused, std::optional<double> scale, MaybeSize left, MaybeSize right) {
  TORCH_CHECK(!at::globalContext().deterministicAlgorithmsWarnOnly(),
              "the backward of CUDA's flash attention would add up in any order");
  check_values(slope, query, "gradient");
  check_values(result, query, "result");
  TORCH_CHECK(random.numel() == 2 && unused.numel() == 0 &&
                  exponents.sizes() == at::IntArrayRef({query.size(1), query.size(0)}),
              "not what the forward gave");
  const std::vector<Sequence> sequences =
      check_all(query, key, value, {offsets, longest.expect_int()},
                {key_offsets, longest_key.expect_int()}, dropout, causal, right);
  at::Tensor of_query = at::zeros_like(query);
  at::Tensor of_key = at::zeros_like(key);
  at::Tensor of_value = at::zeros_like(value);
  for (const auto& sequence : sequences) {
    const std::int64_t begin = sequence.begin;
    const std::int64_t tokens = sequence.end - begin;
    const std::int64_t keys = sequence.keys_end - sequence.keys_begin;
    const auto part = [&](const at::Tensor& values) {
      return by_head(values, begin, sequence.end, key.size(1));
    };
    const auto key_part = [&](const at::Tensor& values) {
      return by_head(values, sequence.keys_begin, sequence.keys_end, key.size(1));
    };
    const at::Tensor own = part(slope);
    const at::Tensor sums = exponents.narrow(1, begin, tokens)
                                .unflatten(0, {key.size(1), query.size(1) / key.size(1)})
                                .unsqueeze(-1);
    const at::Tensor probabilities =
        scores_of(part(query), key_part(key), *scale, left).sub(sums).exp();
    const at::Tensor inner = at::matmul(own, key_part(value).transpose(2, 3))
                                 .sub(own.mul(part(result)).sum(-1, /*keepdim=*/true))
                                 .mul(probabilities)
                                 .mul(*scale);
    const auto over_group = [](const at::Tensor& values) { return values.sum(1, true); };
    of_query.narrow(0, begin, tokens).copy_(by_token(at::matmul(inner, key_part(key))));
    of_key.narrow(0, sequence.keys_begin, keys)
        .copy_(by_token(over_group(at::matmul(inner.transpose(2, 3), part(query)))));
    of_value.narrow(0, sequence.keys_begin, keys)
        .copy_(by_token(over_group(at::matmul(probabilities.transpose(2, 3), own))));
  }
  return {of_query, of_key, of_value};
}

// The test device's operators run on these, behind what is on its streams.
TORCH_LIBRARY_IMPL(aten, CPU, library) {
  library.impl("_flash_attention_forward", TORCH_FN(flash_forward));
  library.impl("_flash_attention_backward", TORCH_FN(flash_backward));
}

}  // namespace
}  // namespace strait::test_device
