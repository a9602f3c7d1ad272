"""The AWS SDK for Python: S3 with another endpoint. Usage: with_boto3.py BASE"""

import os
import sys

import boto3
from botocore.config import Config

os.environ.update(AWS_ACCESS_KEY_ID="andante", AWS_SECRET_ACCESS_KEY="andante", AWS_EC2_METADATA_DISABLED="true")
once = Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1})
s3 = boto3.client("s3", region_name="us-east-1", endpoint_url=sys.argv[1], config=once)
for n in range(5):
    s3.head_object(Bucket="s3", Key=f"object-{n}")
s3.put_object(Bucket="s3", Key="object", Body=b"upload\n" * 20_000)
if s3.get_object(Bucket="s3", Key="large")["Body"].read() != b"andante\n" * (512 * 1024):
    sys.exit("the object came back as another one")
print("spoke")
