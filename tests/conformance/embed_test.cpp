// The embed op on every backend: for every weight type the dequantized row, bit for bit, times the scale.
#include <support/backend_matrix.hpp>

namespace corbel_test {
namespace {

TEST_CASE("embed: every weight type, tied to a linear or not") {
  Rng rng(61);
  for (const corbel::DTypeTraits& type : corbel::all_dtypes()) {
    INFO(type.name);
    const std::uint32_t width = std::max<std::uint32_t>(type.block_elements, 32) * 2;
    const hal::WeightPart part = quantized_part(type.dtype, 53, width, rng);
    for (const float scale : {1.0f, 24.0f}) {
      for (const bool tied : {false, true}) {
        OpProgram p;
        const hal::ValueId x = p.value("x", width), y = p.value("y", 53);
        const hal::WeightId weight = p.weight(
            {part}, static_cast<std::uint8_t>(tied ? hal::kUseEmbedding | hal::kUseLinear : hal::kUseEmbedding));
        hal::Op& op = p.add(hal::OpKind::kEmbed, {hal::kNone, hal::kNone}, x);
        op.weight = weight;
        op.scale = scale;
        if (tied) p.add(hal::OpKind::kLinear, {x, hal::kNone}, y).weight = weight;
        BatchRows rows;
        for (const std::int32_t token : {0, 52, 17, 17, 1, 31, 15, 16, 48})
          rows.add(token, static_cast<std::int32_t>(rows.size()));
        Matrix expected = take_rows(dequantized(p.program.weights[0]), rows.tokens);
        for (float& value : expected.data) value = scale * value;
        for_each_backend([&]<class B>(const Target& target) {
          OpRunner<B> runner(target.context(), p.program);
          const Matrix out = runner.run(rows, {}, {x})[0];
          bool same = out.data.size() == expected.data.size();
          for (std::size_t i = 0; same && i < out.data.size(); ++i) same = out.data[i] == expected.data[i];
          CHECK(same);
        });
      }
    }
  }
}

}  // namespace
}  // namespace corbel_test
