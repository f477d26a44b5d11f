#include "framework/codec/codecs.h"

#include <algorithm>
#include <utility>

#include "framework/codec/raw.h"
#include "framework/codec/sample_decoder.h"
#include "framework/codec/sample_encoder.h"

namespace strait::codec {
namespace {

using Cache = CodecOffer::Cache;
using Way = Choice::Way;

std::unique_ptr<Encoder> raw_encoder(const CodecSettings& settings, Cache) {
  return std::make_unique<RawEncoder>(settings.wire);
}

std::unique_ptr<Decoder> raw_decoder(const CodecSettings& settings, Cache) {
  return std::make_unique<RawDecoder>(settings.wire, settings.result);
}

PayloadBytes raw_payload(const CodecSettings& settings, const PayloadLoad& load) {
  const double bytes = load.tokens * static_cast<double>(load.width) *
                       static_cast<double>(c10::elementSize(settings.wire));
  return {bytes, bytes};
}

SampleEncoderOptions sample_options(const CodecSettings& settings, const Choice& choice) {
  SampleEncoderOptions options;
  options.choice = choice;
  options.group = settings.group;
  options.rotate = settings.rotate;
  options.rounding = settings.rounding;
  options.key = settings.key;
  return options;
}

template <Way way>
std::unique_ptr<Encoder> sample_encoder(const CodecSettings& settings, Cache cache) {
  const Choice choice{way, settings.bits, settings.first_bits};
  return std::make_unique<SampleEncoder>(sample_options(settings, choice), std::move(cache));
}

ChoiceLimits choice_limits(const CodecSettings& settings, bool remembers) {
  // `bits` limits changes, which are small. Values without a base are whole activations: below four
  // bits their error is far larger than the user accepted for changes.
  constexpr int kLeastOfWholeValues = 4;
  ChoiceLimits limits;
  limits.least_bits = settings.bits;
  limits.first_bits = settings.first_bits;
  limits.fixed_bits = remembers ? std::max(settings.bits, kLeastOfWholeValues) : settings.bits;
  limits.remembers = remembers;
  limits.group = settings.group;
  return limits;
}

std::unique_ptr<Encoder> auto_encoder(const CodecSettings& settings, Cache cache) {
  const ChoiceLimits limits = choice_limits(settings, cache != nullptr);
  SampleEncoderOptions options = sample_options(settings, first_choice(limits));
  if (settings.chooser) options.choose = settings.chooser(limits);
  return std::make_unique<SampleEncoder>(std::move(options), std::move(cache));
}

std::unique_ptr<Decoder> sample_decoder(const CodecSettings& settings, Cache cache) {
  return std::make_unique<SampleDecoder>(settings.result, std::move(cache));
}

double token_bytes(const CodecSettings& settings, int bits, std::int64_t width) {
  if (bits == kWholeBits) return 2.0 * static_cast<double>(width);
  return static_cast<double>(kernels::token_bytes({bits, settings.group, settings.rotate}, width));
}

double quantised(const CodecSettings& settings, const PayloadLoad& load, int bits, RowBase base) {
  return static_cast<double>(kPayloadHeaderBytes) +
         load.rows * static_cast<double>(head_bytes(base)) +
         load.tokens * token_bytes(settings, bits, load.width);
}

PayloadBytes fixed_payload(const CodecSettings& settings, const PayloadLoad& load) {
  const double bytes = quantised(settings, load, settings.bits, RowBase::none);
  return {bytes, bytes};
}

PayloadBytes delta_payload(const CodecSettings& settings, const PayloadLoad& load) {
  return {quantised(settings, load, settings.first_bits, RowBase::fresh),
          quantised(settings, load, settings.bits, RowBase::entry)};
}

// Forecast at the fewest bits: what auto chooses depends on measurements that a plan does not have.
PayloadBytes auto_payload(const CodecSettings& settings, const PayloadLoad& load) {
  return settings.remembers ? delta_payload(settings, load) : fixed_payload(settings, load);
}

}  // namespace

Catalogue<CodecOffer>& codecs() {
  using Remembers = CodecOffer::Remembers;
  static Catalogue<CodecOffer> all(
      "codec", {{"raw", Remembers::nothing, true, raw_encoder, raw_decoder, raw_payload},
                {"fixed", Remembers::nothing, true, sample_encoder<Way::fixed>, sample_decoder,
                 fixed_payload},
                {"delta", Remembers::samples, false, sample_encoder<Way::delta>, sample_decoder,
                 delta_payload},
                {"auto", Remembers::where_samples_return, true, auto_encoder, sample_decoder,
                 auto_payload}});
  return all;
}

}  // namespace strait::codec
