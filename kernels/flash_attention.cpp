#include "kernels/flash_attention.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "framework/mutex.h"
#include "kernels/kernel_tensors.h"

namespace strait::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t kWidest = 256;
// Above this width some GPUs have no backward.
constexpr std::int64_t kWideForAll = 192;
constexpr std::int64_t kWideForSome = 224;
constexpr std::int64_t kWidthStep = 8;
constexpr std::int64_t kPaddingSequence = 64;  // short, because work grows with the square

// The device itself must implement it: a fallback would compute on the host.
bool device_has_flash_attention(at::Device device) {
  const auto has = [&](const char* name) {
    const auto found = c10::Dispatcher::singleton().findSchema({name, ""});
    const auto key = c10::computeDispatchKey(std::nullopt, std::nullopt, device);
    return found && found->hasKernelForDispatchKey(key);
  };
  return has("aten::_flash_attention_forward") && has("aten::_flash_attention_backward");
}

// Whether a GPU is too old shows only when libtorch is asked to compute. Empty: it computes.
std::string refusal_to_compute(at::Device device) {
  const at::NoGradGuard no_grad;
  const auto options = at::device(device);
  const at::Tensor tokens = at::zeros({kPaddingSequence, 1, kWidthStep}, options.dtype(at::kHalf));
  const at::Tensor offsets =
      on_device(at::tensor({0, static_cast<int>(kPaddingSequence)}, at::kInt), device);
  try {
    at::_flash_attention_forward(tokens, tokens, tokens, offsets, offsets, kPaddingSequence,
                                 kPaddingSequence, /*dropout_p=*/0.0, /*is_causal=*/true,
                                 /*return_debug_mask=*/false, /*scale=*/1.0,
                                 /*window_size_left=*/std::nullopt, /*window_size_right=*/0);
    return {};
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::Error& error) {
    return "libtorch says: " + error.msg();
  }
}

// If operators without a deterministic algorithm only cause warnings, libtorch's backward adds in
// any order, although it has a deterministic algorithm. The setting belongs to the process, and one
// thread computes.
class InFixedOrder {
 public:
  InFixedOrder() {
    if (warn_only_) set_warn_only(false);
  }
  ~InFixedOrder() {
    if (warn_only_) set_warn_only(true);
  }
  InFixedOrder(const InFixedOrder&) = delete;
  InFixedOrder& operator=(const InFixedOrder&) = delete;

 private:
  static void set_warn_only(bool warn_only) {
    at::Context& context = at::globalContext();
    context.setDeterministicAlgorithms(context.deterministicAlgorithms(), warn_only);
  }

  const bool warn_only_ = at::globalContext().deterministicAlgorithmsWarnOnly();
};

at::Tensor tokens_of_rows(const at::Tensor& heads) { return heads.contiguous().flatten(0, 1); }

// Of the last `length` tokens of each row.
void clear_padding(const at::Tensor& of_rows, const std::vector<AttentionSpan>& padding,
                   std::int64_t length) {
  for (const AttentionSpan& run : padding) {
    of_rows.select(0, run.row).narrow(0, of_rows.size(1) - length + run.begin, run.length).zero_();
  }
}

at::Tensor last_of_row(const at::Tensor& of_rows, std::size_t row, std::int64_t count) {
  return of_rows.select(0, static_cast<std::int64_t>(row))
      .narrow(0, of_rows.size(1) - count, count);
}

at::Tensor pack_keys(const at::Tensor& keys, const PackedSequences& packed, std::int64_t length) {
  if (keys.size(1) == length) return tokens_of_rows(keys);
  std::vector<at::Tensor> parts;
  for (std::size_t row = 0; row < packed.row_keys.size(); ++row) {
    parts.push_back(last_of_row(keys, row, packed.row_keys[row]));
  }
  return at::cat(parts);
}

// To [rows, key length, heads, width]; zero for keys that pack_keys() leaves out.
at::Tensor unpack_keys(const at::Tensor& tokens, const PackedSequences& packed, std::int64_t length,
                       std::int64_t key_length) {
  const auto rows = static_cast<std::int64_t>(packed.row_keys.size());
  if (key_length == length) return tokens.unflatten(0, {rows, length});
  at::Tensor keys = at::zeros({rows, key_length, tokens.size(1), tokens.size(2)}, tokens.options());
  const std::vector<at::Tensor> parts = tokens.split_with_sizes(packed.row_keys);
  for (std::size_t row = 0; row < parts.size(); ++row) {
    last_of_row(keys, row, packed.row_keys[row]).copy_(parts[row]);
  }
  return keys;
}

std::optional<std::int64_t> keys_before(std::int64_t window) {
  if (window == 0) return std::nullopt;
  return window - 1;  // libtorch does not count the query's own key
}

struct FlashAttention : public torch::autograd::Function<FlashAttention> {
  struct Job : public torch::CustomClassHolder {
    Job(PackedSequences sequences, const AttentionRules& how)
        : packed(std::move(sequences)), rules(how) {}
    PackedSequences packed;
    AttentionRules rules;
  };

  static at::Tensor forward(AutogradContext* context, const at::Tensor& query,
                            const at::Tensor& key, const at::Tensor& value,
                            const std::vector<AttentionSpan>& spans, const AttentionRules& rules) {
    const auto job =
        c10::make_intrusive<Job>(pack_sequences(spans, query.size(0), query.size(1)), rules);
    const PackedSequences& packed = job->packed;
    const at::Tensor offsets = on_device(at::tensor(packed.offsets, at::kInt), query.device());
    const at::Tensor key_offsets =
        packed.key_offsets == packed.offsets
            ? offsets
            : on_device(at::tensor(packed.key_offsets, at::kInt), query.device());
    const at::Tensor queries = tokens_of_rows(query);
    const at::Tensor keys = pack_keys(key, packed, query.size(1));
    const at::Tensor values = pack_keys(value, packed, query.size(1));
    // The last query of a sequence sees its last key: the past comes before the first one's own.
    const auto made = at::_flash_attention_forward(
        queries, keys, values, offsets, key_offsets, packed.longest, packed.longest_keys,
        /*dropout_p=*/0.0, /*is_causal=*/true, /*return_debug_mask=*/false, rules.scale,
        keys_before(rules.window), /*window_size_right=*/0);
    const at::Tensor& result = std::get<0>(made);
    clear_padding(result.view(query.sizes()), packed.padding, query.size(1));
    context->save_for_backward({queries, keys, values, result, std::get<1>(made), std::get<2>(made),
                                std::get<3>(made), offsets, key_offsets});
    context->saved_data["job"] = c10::IValue::make_capsule(job);
    context->saved_data["length"] = query.size(1);
    context->saved_data["key_length"] = key.size(1);
    return result.view(query.sizes());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto capsule = context->saved_data["job"].toCapsule();
    const auto* job = dynamic_cast<const Job*>(capsule.get());
    const PackedSequences& packed = job->packed;
    const InFixedOrder fixed_order;
    const auto [query, key, value] = at::_flash_attention_backward(
        tokens_of_rows(gradients[0]), saved[0], saved[1], saved[2], saved[3], saved[4], saved[7],
        saved[8], packed.longest, packed.longest_keys, /*dropout_p=*/0.0, /*is_causal=*/true,
        saved[5], saved[6], job->rules.scale, keys_before(job->rules.window),
        /*window_size_right=*/0);
    const std::int64_t length = context->saved_data["length"].toInt();
    const std::int64_t key_length = context->saved_data["key_length"].toInt();
    variable_list into{query.unflatten(0, {-1, length}),
                       unpack_keys(key, packed, length, key_length),
                       unpack_keys(value, packed, length, key_length)};
    for (const at::Tensor& of_rows : into) clear_padding(of_rows, packed.padding, length);
    into.resize(5);  // no gradients for spans and rules
    return into;
  }
};

}  // namespace

std::string no_flash_attention(at::Device device) {
  static Mutex mutex;
  static std::map<c10::DeviceIndex, std::string> known;
  const MutexLock lock(mutex);
  const auto found = known.find(device.index());
  if (found != known.end()) return found->second;
  std::string obstacle = device_has_flash_attention(device)
                             ? refusal_to_compute(device)
                             : "this libtorch has none for such devices";
  return known.emplace(device.index(), std::move(obstacle)).first->second;
}

PackedSequences pack_sequences(const std::vector<AttentionSpan>& spans, std::int64_t rows,
                               std::int64_t length) {
  std::vector<AttentionSpan> sorted = spans;
  const auto first = [length](const AttentionSpan& span) { return span.row * length + span.begin; };
  std::ranges::sort(sorted, {}, first);
  PackedSequences packed;
  packed.row_keys.assign(static_cast<std::size_t>(rows), length);
  std::int64_t past_keys = 0;
  const auto add = [&](std::int64_t begin, std::int64_t tokens, std::int64_t past) {
    packed.offsets.push_back(static_cast<std::int32_t>(begin));
    packed.key_offsets.push_back(static_cast<std::int32_t>(begin + past_keys));
    packed.longest = std::max(packed.longest, tokens);
    packed.longest_keys = std::max(packed.longest_keys, tokens + past);
    past_keys += past;
  };
  // Runs within one row, so that they can be cleared there.
  const auto pad = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t next = begin; next < end;) {
      const std::int64_t row = next / length;
      const std::int64_t stop = std::min(end, (row + 1) * length);
      packed.padding.push_back({row, next - row * length, stop - next});
      for (; next < stop; next += std::min(kPaddingSequence, stop - next)) {
        add(next, std::min(kPaddingSequence, stop - next), 0);
      }
    }
  };
  std::int64_t covered = 0;
  for (const AttentionSpan& span : sorted) {
    TORCH_INTERNAL_ASSERT(first(span) >= covered && span.begin + span.length <= length,
                          "documents overlap at token ", span.begin, " of row ", span.row);
    pad(covered, first(span));
    if (span.length > 0) {
      add(first(span), span.length, span.past);
      packed.row_keys[static_cast<std::size_t>(span.row)] += span.past;
    }
    covered = first(span) + span.length;
  }
  pad(covered, rows * length);
  packed.offsets.push_back(static_cast<std::int32_t>(rows * length));
  packed.key_offsets.push_back(static_cast<std::int32_t>(rows * length + past_keys));
  return packed;
}

bool flash_attention_fits(const AttentionHeads& heads, const AttentionRules& rules) {
  const at::ScalarType type = heads.query.scalar_type();
  const std::int64_t width = heads.query.size(3);
  return !heads.query.is_cpu() && !heads.sinks.defined() &&
         (type == at::kBFloat16 || type == at::kHalf) && width == heads.value.size(3) &&
         width <= kWidest && width % kWidthStep == 0 &&
         !(width > kWideForAll && width <= kWideForSome) && rules.dropout == 0 &&
         rules.softcap == 0 && heads.query.numel() > 0 &&
         no_flash_attention(heads.query.device()).empty();
}

at::Tensor flash_attention(const AttentionHeads& heads, const std::vector<AttentionSpan>& spans,
                           const AttentionRules& rules) {
  return FlashAttention::apply(heads.query, heads.key, heads.value, spans, rules);
}

}  // namespace strait::kernels
