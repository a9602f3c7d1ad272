# Ruby's Net::HTTP. Usage: with_net_http.rb BASE
require 'net/http'

base = URI(ARGV[0])
upload = "upload\n" * 20_000
steps = (0..4).map { |n| ['GET', "/json?n=#{n}", nil, %({"n":"#{n}"})] }
steps << ['POST', '/upload', upload, %({"length":"#{upload.size}"})]
steps << ['GET', '/events', nil, (0..19).map { |n| "id: #{n}\ndata: event #{n}\n\n" }.join]
steps << ['GET', '/large', nil, "andante\n" * (512 * 1024)]

Net::HTTP.start(base.host, base.port, use_ssl: base.scheme == 'https') do |http|
  steps.each do |method, path, body, expected|
    answer = http.send_request(method, base.path + path, body)
    unless answer.code == '200' && answer.body == expected
      abort "#{method} #{path}: got #{answer.code} #{answer.body[0, 200]}"
    end
  end
end
puts 'spoke'
