"""A failure said in the terms of a request whose answer has no place for one error about all of it."""

from __future__ import annotations

from odradek.protocol.codec import Message
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages import (
    alter_client_quotas,
    alter_configs,
    alter_user_scram_credentials,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_topics,
    incremental_alter_configs,
)


def error_answer(request: Message, why: KafkaError) -> Message:
    """The answer that says the same of everything that was asked for; raises `why` where the answer has one place."""
    code, text = why.code, str(why)
    match request:
        case create_topics.CreateTopicsRequest():
            return create_topics.CreateTopicsResponse(
                topics=[
                    create_topics.CreatableTopicResult(name=each.name, error_code=code, error_message=text)
                    for each in request.topics
                ]
            )
        case delete_topics.DeleteTopicsRequest():
            return delete_topics.DeleteTopicsResponse(
                responses=[
                    *(
                        delete_topics.DeletableTopicResult(
                            name=each.name, topic_id=each.topic_id, error_code=code, error_message=text
                        )
                        for each in request.topics
                    ),
                    *(
                        delete_topics.DeletableTopicResult(name=name, error_code=code, error_message=text)
                        for name in request.topic_names
                    ),
                ]
            )
        case create_partitions.CreatePartitionsRequest():
            return create_partitions.CreatePartitionsResponse(
                results=[
                    create_partitions.CreatePartitionsTopicResult(name=each.name, error_code=code, error_message=text)
                    for each in request.topics
                ]
            )
        case alter_configs.AlterConfigsRequest():
            return alter_configs.AlterConfigsResponse(
                responses=[
                    alter_configs.AlterConfigsResourceResponse(
                        resource_type=each.resource_type,
                        resource_name=each.resource_name,
                        error_code=code,
                        error_message=text,
                    )
                    for each in request.resources
                ]
            )
        case incremental_alter_configs.IncrementalAlterConfigsRequest():
            return incremental_alter_configs.IncrementalAlterConfigsResponse(
                responses=[
                    incremental_alter_configs.AlterConfigsResourceResponse(
                        resource_type=each.resource_type,
                        resource_name=each.resource_name,
                        error_code=code,
                        error_message=text,
                    )
                    for each in request.resources
                ]
            )
        case _:
            return _access_error_answer(request, why)


def _access_error_answer(request: Message, why: KafkaError) -> Message:
    code, text = why.code, str(why)
    match request:
        case create_acls.CreateAclsRequest():
            return create_acls.CreateAclsResponse(
                results=[create_acls.AclCreationResult(error_code=code, error_message=text) for _ in request.creations]
            )
        case delete_acls.DeleteAclsRequest():
            return delete_acls.DeleteAclsResponse(
                filter_results=[
                    delete_acls.DeleteAclsFilterResult(error_code=code, error_message=text, matching_acls=[])
                    for _ in request.filters
                ]
            )
        case alter_client_quotas.AlterClientQuotasRequest():
            return alter_client_quotas.AlterClientQuotasResponse(
                entries=[
                    alter_client_quotas.EntryData(
                        error_code=code,
                        error_message=text,
                        entity=[
                            alter_client_quotas.EntityData(entity_type=part.entity_type, entity_name=part.entity_name)
                            for part in each.entity
                        ],
                    )
                    for each in request.entries
                ]
            )
        case alter_user_scram_credentials.AlterUserScramCredentialsRequest():
            deleted = [each.name for each in request.deletions]
            names = dict.fromkeys(deleted + [each.name for each in request.upsertions])
            return alter_user_scram_credentials.AlterUserScramCredentialsResponse(
                results=[
                    alter_user_scram_credentials.AlterUserScramCredentialsResult(
                        user=name, error_code=code, error_message=text
                    )
                    for name in names
                ]
            )
        case _:
            raise why
